"""The careful path: all records of a micro-batch evaluated once, each with its fate beside it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from agents.guard import VALUE, guarded
from agents.pipeline import Pipeline
from agents.segments import after_steps
from agents.whole import broadcast_if_small, made_whole, may_part
from agents.worker.columns import (
    CARRIED,
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FATE,
    FILTERED,
    HELD,
    ORDINAL,
    POSITION,
    RETRIES,
    ROW,
    SOURCE,
    TASK,
)
from controlplane.domain.names import KEY_MAX_BYTES
from controlplane.domain.policy import Policy

#: Up to so many records are looked through by one Spark task: a shuffle would cost more.
_ONE_TASK_RECORDS = 200_000
#: Beside a mark: the fate that is known before evaluation.
MARK = "__arrester_mark"
#: What a record fails of whose task or position raised.
TASK_RAISED, POSITION_RAISED = "TaskRaised", "PositionRaised"
_TASK_ATTEMPT = "__arrester_task_attempt"
_POSITION_ATTEMPT = "__arrester_position_attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A micro-batch (or chunk) after its steps, in a local checkpoint, and what is in it."""

    frame: DataFrame
    records: int
    failed: int
    held: int
    #: Attempts after the first that its records took, of those that passed too.
    retries: int
    #: Whether a record that became several rows may have failed in some of them only.
    parted: bool = False
    #: Local checkpoints to give back; None: `frame` is the only one.
    blocks: tuple[DataFrame, ...] | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing failed and nothing is to be held."""
        return self.failed == 0 and self.held == 0

    def passed(self, pipeline: Pipeline, held: Column | None = None) -> DataFrame:
        """Return the rows for the sink: what passed all steps, without what is `held`."""
        rows = self.frame.where(F.col(FATE).isNull())
        rows = rows if held is None else rows.where(~held)
        return rows.select(*[_quoted(name) for name in pipeline.columns])

    def release(self) -> None:
        """Give the blocks of the local checkpoint back."""
        for frame in self.blocks or (self.frame,):
            plan: Any = frame._jdf.queryExecution().analyzed()
            plan.rdd().unpersist(False)


def evaluate(
    source: DataFrame,
    pipeline: Pipeline,
    *,
    blocked: Collection[str | None] = (),
    marks: DataFrame | None = None,
    policy: Policy = Policy(),  # noqa: B008 (frozen)
) -> Evaluated:
    """Run the steps of `pipeline` over `source`, each record by itself.

    Held rows have a column ENTRY beside the source's own; the position is unique within an entry.
    Tasks in `blocked` are not evaluated: their records are to be held. `marks` gives fates that
    are known already, by task, entry and position. A position that is there twice in a task blames
    all records that have it, whatever the steps made of them.
    """
    prepared = _prepared(source, pipeline, blocked, marks)
    evaluated = _evaluated(prepared, pipeline, policy)
    twice = _positions_twice(evaluated)
    if twice is None:
        return evaluated
    evaluated.release()
    known = twice if marks is None else marks.unionByName(twice)
    again = _prepared(source, pipeline, blocked, known)
    return _evaluated(again, pipeline, policy)


def task_key(pipeline: Pipeline) -> Column:
    """Return the task's key as text; a long one as `names.bounded_key` makes it.

    Bytes that are not UTF-8 become `0x…`: the driver could not name such a key to Spark again.
    """
    if pipeline.task is None:
        return F.lit(None).cast("string")
    raw = pipeline.task.cast("string")
    as_hex = F.concat(F.lit("0x"), F.hex(raw.cast("binary")))
    key = F.when(F.is_valid_utf8(raw), raw).otherwise(as_hex)
    long = F.concat(F.substring(key, 1, 64), F.lit("…"), F.sha2(key.cast("binary"), 256))
    return F.when(F.octet_length(key) > KEY_MAX_BYTES, long).otherwise(key)


def _prepared(
    source: DataFrame,
    pipeline: Pipeline,
    blocked: Collection[str | None],
    marks: DataFrame | None,
) -> DataFrame:
    """Put the carried columns beside the source's own.

    A record whose task is unknown has no place either: it is in no task, not in the global one.
    """
    theirs = [_quoted(name) for name in source.columns if name != ENTRY]
    never = F.lit(False)
    frame = source.select(
        F.struct(*theirs).alias(ROW),
        guarded(source, task_key(pipeline), unless=never).alias(_TASK_ATTEMPT),
        guarded(source, pipeline.position.cast("long"), unless=never).alias(_POSITION_ATTEMPT),
        (F.col(ENTRY) if ENTRY in source.columns else F.lit(0)).alias(ENTRY),
        *theirs,
    )
    no_task = F.col(_TASK_ATTEMPT).isNull()
    frame = frame.select(
        ROW,
        F.col(_TASK_ATTEMPT)[VALUE].alias(TASK),
        F.when(~no_task, F.col(_POSITION_ATTEMPT)[VALUE]).alias(POSITION),
        ENTRY,
        F.when(no_task, _raised("task"))
        .when(F.col(_POSITION_ATTEMPT).isNull(), _raised("position"))
        .alias(ERROR),
        *theirs,
    )
    mark = F.lit(None).cast("int")
    if marks is not None:
        frame, mark = _marked(frame, marks), F.col(MARK)
    fate = (
        F.when(mark.isNotNull(), mark)
        .when(F.col(ERROR)["exception_class"] == TASK_RAISED, F.lit(SOURCE))
        .when(_is_one_of(F.col(TASK), blocked), F.lit(HELD))
        .when(F.col(POSITION).isNull(), F.lit(SOURCE))
    )
    return frame.select(
        *[F.col(name) for name in CARRIED],
        fate.alias(FATE),
        F.when(fate == SOURCE, F.col(ERROR)).alias(ERROR),
        F.lit(0).alias(ORDINAL),
        F.lit(0).cast("long").alias(RETRIES),
        *theirs,
    )


def _raised(what: str) -> Column:
    """Return the error of a record whose task or position cannot be told."""
    said = {
        "exception_class": F.lit(TASK_RAISED if what == "task" else POSITION_RAISED),
        "message": F.lit(
            f"the expression of the {what} raised; a record needs its {what} "
            "to be paused and resumed at"
        ),
        "stack": F.lit(None),
        "frame": F.lit(None),
        "names": F.array(),
        "condition": F.lit(None),
        "kind": F.lit(None),
        "attempts": F.lit(1),
    }
    return F.struct(*[value.alias(name) for name, value in said.items()]).cast(ERROR_TYPE)


def _marked(frame: DataFrame, marks: DataFrame) -> DataFrame:
    names = {name: f"{name}_marked" for name in (TASK, ENTRY, POSITION)}
    marks = marks.groupBy(*names).agg(F.min(MARK).alias(MARK))
    same = [F.col(ours).eqNullSafe(F.col(other)) for ours, other in names.items()]
    right = broadcast_if_small(marks.withColumnsRenamed(names))
    return frame.join(right, same, "left").drop(*names.values())


def _is_one_of(task: Column, keys: Collection[str | None]) -> Column:
    texts = [key for key in keys if key is not None]
    found = task.isin(texts) if texts else F.lit(False)
    return F.coalesce(found, F.lit(None in keys))


def _evaluated(prepared: DataFrame, pipeline: Pipeline, policy: Policy) -> Evaluated:
    evaluated = _checkpointed(after_steps(prepared, pipeline.steps, policy=policy))
    if not (evaluated.parted and may_part(pipeline.steps)):
        return evaluated
    whole = _checkpointed(made_whole(evaluated.frame))
    evaluated.release()
    return whole


def _checkpointed(frame: DataFrame) -> Evaluated:
    seen = Observation()
    fate, first = F.col(FATE), F.col(ORDINAL) == 0
    counted = frame.observe(
        seen,
        F.count_if(first).alias("records"),
        F.count_if(first & (fate >= SOURCE)).alias("failed"),
        F.count_if(first & (fate == HELD)).alias("held"),
        F.count_if(~first).alias("more"),
        F.count_if(fate > SOURCE).alias("failed_rows"),
        F.sum(RETRIES).alias("retries"),
    ).localCheckpoint(eager=True)
    counts = seen.get
    return Evaluated(
        frame=counted,
        records=int(counts["records"]),
        failed=int(counts["failed"]),
        held=int(counts["held"]),
        retries=int(counts["retries"] or 0),
        parted=bool(counts["more"] and counts["failed_rows"]),
    )


def _positions_twice(evaluated: Evaluated) -> DataFrame | None:
    """Return marks for positions that are there more than once among the evaluated, or None."""
    fate = F.col(FATE)
    coordinates = evaluated.frame.where(
        (F.col(ORDINAL) == 0)
        & F.col(POSITION).isNotNull()
        & (fate.isNull() | (fate == FILTERED) | (fate > SOURCE))
    ).select(TASK, ENTRY, POSITION)
    if evaluated.records <= _ONE_TASK_RECORDS:
        coordinates = coordinates.coalesce(1)
    twice = (
        coordinates.groupBy(TASK, ENTRY, POSITION)
        .count()
        .where(F.col("count") > 1)
        .select(TASK, ENTRY, POSITION, F.lit(SOURCE).alias(MARK))
    )
    return None if twice.isEmpty() else twice.localCheckpoint(eager=True)


def _quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
