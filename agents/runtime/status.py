"""What an agent shows of its tasks, counters and pipelines, in a notebook and in a terminal."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from arrester.agents.runtime.table import Cell, Table, cell_text
from arrester.agents.runtime.thread_protocol import Thread
from arrester.domain.events import Failure
from arrester.domain.python_versions import UTC
from arrester.domain.state.live_runs import RunStatus
from arrester.domain.state.states import (
    Counters,
    InstanceStatus,
    PipelinePause,
    TaskState,
    TaskStatus,
    ThreadStatus,
)
from arrester.domain.wire.codec import InProgress

#: The tasks that a table shows.
_ROWS = 20
_COLUMNS = ("pipeline", "task", "state", "since", "position", "held", "failed", "cause")
_PIPELINE_COLUMNS = (
    *("pipeline", "state", "rows/s", "failed", "skipped", "held", "paused", "dead"),
    *("last failure", "in progress"),
)


class TaskTable(list[TaskState]):
    """A list of tasks that a notebook and a terminal show as a table, stopped tasks first."""

    def __init__(self, tasks: Iterable[TaskState] = (), *, if_empty: str = "No tasks.") -> None:
        super().__init__(tasks)
        self._if_empty = if_empty

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> Table:
        shown = sorted(self, key=lambda task: not task.status.stopped)[:_ROWS]
        more = f"… and {len(self) - _ROWS:,} more tasks" if len(self) > _ROWS else ""
        note = more if self else self._if_empty
        return Table(_COLUMNS, [_task_row(task) for task in shown], note)


class MetricTable(dict[str, int]):
    """Counters by name that a notebook and a terminal show as a table."""

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> Table:
        return Table(("metric", "value"), [_metric_row(*each) for each in self.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """One run of a pipeline in this instance, and the sums of its tasks."""

    pipeline: str
    checkpoint: str
    state: ThreadStatus
    #: The pause of the pipeline; None: it is not PAUSED.
    pause: PipelinePause | None
    #: The rows per second of its last micro-batch, or of held records while it processes those;
    #: None if unknown.
    rows_per_second: float | None
    #: Failed records and skipped ones, since the creation of the checkpoint.
    failed: int
    skipped: int
    #: Records that are held now, and stopped tasks.
    held: int
    paused: int
    dead: int
    last_failure: datetime | None
    #: The micro-batch or chunk of held records that it processes now.
    in_progress: InProgress | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AgentStatus:
    """One screen about an agent; `print` and a notebook show it as tables."""

    application: str
    instance: UUID
    state: InstanceStatus
    #: The exception that ended the first failed pipeline.
    exception: BaseException | None
    pipelines: tuple[PipelineStatus, ...]
    #: The PAUSED and DEAD tasks.
    stopped: TaskTable
    #: As `agent.metrics()`.
    metrics: MetricTable

    def __repr__(self) -> str:
        return "\n\n".join(["\n".join(self._head()), *(table.text() for table in self._tables())])

    def _repr_html_(self) -> str:
        head = "<br>".join(map(html.escape, self._head()))
        return f"<p>{head}</p>{''.join(table.html() for table in self._tables())}"

    def _head(self) -> list[str]:
        lines = [
            f"application {self.application}, instance {self.instance}: {self.state}",
            _connection(self.metrics),
        ]
        if self.exception is not None:
            failure = f"{type(self.exception).__name__}: {self.exception}"
            lines.append(f"failure: {cell_text(failure)}")
        return lines

    def _tables(self) -> list[Table]:
        rows = [_pipeline_row(each) for each in self.pipelines]
        pipelines = Table(_PIPELINE_COLUMNS, rows, "" if rows else "No pipeline was started.")
        return [pipelines, self.stopped._table()]


def tasks_of(threads: Iterable[Thread]) -> list[TaskState]:
    """Return the tasks of all threads; a later run has newer states than an earlier one."""
    states = (state for thread in threads for state in thread.tasks())
    return list({state.id: state for state in states}.values())


def metrics_of(tasks: Sequence[TaskState], agent: Mapping[str, int]) -> MetricTable:
    """Return the counters of all tasks under their KIP-298 names, then those of the agent."""
    counters = [state.counters for state in tasks]
    totals = {
        name.replace("_", "-"): sum(getattr(each, name) for each in counters)
        for name in Counters.__struct_fields__
        if name != "last_failure_timestamp"
    }
    latest = _last_failure(tasks)
    totals["last-failure-timestamp"] = int(latest.timestamp() * 1000) if latest else 0
    return MetricTable(totals | {"tasks-paused": _count(tasks, TaskStatus.PAUSED)} | dict(agent))


def pipelines_of(threads: Iterable[Thread]) -> tuple[PipelineStatus, ...]:
    """Return the status of each pipeline and checkpoint: that of its newest run."""
    newest = {(thread.pipeline_name, thread.checkpoint_id): thread for thread in threads}
    return tuple(map(_pipeline_status, newest.values()))


def _pipeline_status(thread: Thread) -> PipelineStatus:
    tasks, state = thread.tasks(), thread.state
    return PipelineStatus(
        pipeline=thread.pipeline_name,
        checkpoint=thread.checkpoint_id,
        state=state,
        pause=thread.pause,
        # The query may end a moment after the run.
        rows_per_second=thread.rows_per_second if state is ThreadStatus.RUNNING else None,
        failed=sum(task.failed for task in tasks),
        skipped=sum(task.counters.records_skipped for task in tasks),
        held=sum(task.held for task in tasks),
        paused=_count(tasks, TaskStatus.PAUSED),
        dead=_count(tasks, TaskStatus.DEAD),
        last_failure=_last_failure(tasks),
        in_progress=thread.in_progress,
    )


def _count(tasks: Iterable[TaskState], status: TaskStatus) -> int:
    return sum(task.status is status for task in tasks)


def _last_failure(tasks: Iterable[TaskState]) -> datetime | None:
    times = (task.counters.last_failure_timestamp for task in tasks)
    return max((each for each in times if each is not None), default=None)


def _task_row(task: TaskState) -> Sequence[Cell]:
    key = "(no key)" if task.id.key is None else task.id.key
    # A position is an identifier, so it has no thousands separators.
    position = None if task.position is None else str(task.position)
    counts = (task.held, task.failed)
    cause = _cause(task.failure)
    return (task.id.pipeline, key, task.status.value, task.since, position, *counts, cause)


def _metric_row(name: str, value: int) -> Sequence[Cell]:
    """Return a counter, and a time in milliseconds as a time; 0 is no time."""
    if not name.endswith("-timestamp"):
        return name, value
    return name, datetime.fromtimestamp(value / 1000, UTC) if value else None


def _cause(failure: Failure | None) -> str | None:
    if failure is None:
        return None
    name = failure.exception_class.rpartition(".")[2]
    return f"{failure.stage}: {name}: {failure.message}"


def _pipeline_row(each: PipelineStatus) -> Sequence[Cell]:
    counts = (each.failed, each.skipped, each.held, each.paused, each.dead)
    in_progress = _in_progress(each.in_progress)
    is_paused = each.state is ThreadStatus.RUNNING and each.pause is not None
    state = RunStatus.PAUSED.value if is_paused else each.state.value
    return (each.pipeline, state, each.rows_per_second, *counts, each.last_failure, in_progress)


def _in_progress(now: InProgress | None) -> str | None:
    if now is None:
        return None
    seconds = (datetime.now(UTC) - now.since).total_seconds()
    return ", ".join(filter(None, [now.input, now.phase, f"{seconds:,.0f} s"]))


def _connection(metrics: Mapping[str, int]) -> str:
    if "events-spooled" not in metrics:
        return "not started"
    reachable = metrics.get("redis-reachable")
    if reachable is None:
        redis = "no server: REDIS_URL is not set"
    else:
        redis = "Redis is reachable" if reachable else "Redis is not reachable"
    return f"{redis}; {metrics['events-spooled']:,} events wait in the spool"
