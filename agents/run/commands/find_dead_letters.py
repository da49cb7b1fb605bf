"""Find the dead letters of a command at their destination, and change them by its JSON Patch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.dead_letters.destinations import Destination
from arrester.agents.dead_letters.read_back import (
    SCHEMA,
    DeadLetterRequest,
    StoredDeadLetters,
    UnreadableFile,
)
from arrester.agents.run.commands.redrive import DeadLetterRedriver, SelectedDeadLetters
from arrester.agents.runtime.redrive_result import InvalidDeadLetter
from arrester.agents.runtime.thread_protocol import RedriveCommand
from arrester.agents.spark.frames.local_checkpoint import releasing
from arrester.domain.errors import InvalidValue
from arrester.domain.identity.dead_letter_ids import split_ids
from arrester.domain.json_patch import JsonPatch, PatchFailed

#: The most characters of the rows of records that a patch changes: the driver holds them.
MAX_PATCHED: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDeadLetters:
    """The dead letters of a command, to be processed once more."""

    selected: SelectedDeadLetters
    requested: int
    #: What was not found or cannot be processed.
    problems: Sequence[str]

    @property
    def redriven(self) -> int:
        """How many are processed once more."""
        return self.selected.result.redriven

    @property
    def detail(self) -> str:
        """The answer to a command that processes them, in one line."""
        return "; ".join([f"{self.redriven:,} of {self.requested:,} redriven", *self.problems])


@contextmanager
def find_dead_letters(
    command: RedriveCommand, *, redriver: DeadLetterRedriver, destination: Destination | None
) -> Iterator[FoundDeadLetters]:
    """Yield the dead letters of a command, without the run lock: micro-batches continue.

    Raises InvalidValue and DeadLettersUnreadable if the destination cannot be read back.
    """
    if destination is None:
        name = redriver.pipeline.name
        raise InvalidValue("errors.dlq", None, f"a destination of the dead letters of {name}")
    chosen = command.dead_letters
    if chosen is None or not chosen.ids:
        raise InvalidValue("dead_letters", "none", "those of a redrive in progress")
    request = DeadLetterRequest(
        checkpoint=redriver.journal.ledger.checkpoint,
        ids=[id.hex() for id in split_ids(chosen.ids)],
        since=chosen.since,
        until=chosen.until,
    )
    with releasing() as checkpoints:
        stored = destination.read(request, checkpoints)
        rows = stored.rows
        failed: list[InvalidDeadLetter] = []
        if chosen.patch is not None:
            rows, failed = _patched(rows, JsonPatch(chosen.patch))
        with redriver.select(rows) as selected:
            requested = len(request.ids)
            problems = _problems(requested, selected, failed, stored)
            yield FoundDeadLetters(selected=selected, requested=requested, problems=problems)


def _patched(rows: DataFrame, patch: JsonPatch) -> tuple[DataFrame, list[InvalidDeadLetter]]:
    """Return the changed rows, and those to which the patch does not apply."""
    [size] = rows.agg(F.sum(F.length("row"))).collect()[0]
    if (size or 0) > MAX_PATCHED:
        allowed = f"at most {MAX_PATCHED:,} at once: select fewer"
        raise InvalidValue("dead_letters", f"{size:,} characters to patch", allowed)
    changed, failed = [], {}
    for row in rows.collect():
        try:
            if row["row"] is None:
                raise PatchFailed("it has no row")
            changed.append({**row.asDict(), "row": patch.apply(row["row"])})
        except (PatchFailed, ValueError) as exc:
            failed[row["id"]] = InvalidDeadLetter(id=row["id"], problem=str(exc))
    return rows.sparkSession.createDataFrame(changed, SCHEMA), list(failed.values())


def _problems(
    requested: int,
    selected: SelectedDeadLetters,
    failed: list[InvalidDeadLetter],
    stored: StoredDeadLetters,
) -> list[str]:
    """Return what cannot be processed once more, and why."""
    result = selected.result
    invalid = result.invalid + len(failed)
    parts = []
    if result.taken_before:
        parts.append(f"{result.taken_before:,} taken by an earlier redrive")
    if invalid:
        first = (*failed, *result.examples)[0]
        parts.append(f"{invalid:,} invalid, such as {first.id}: {first.problem}")
    if missing := requested - result.redriven - result.taken_before - invalid:
        parts.append(f"{missing:,} not found at the destination")
    parts += map(_unreadable, stored.unreadable[:3])
    return parts


def _unreadable(file: UnreadableFile) -> str:
    return f"{file.file} cannot be read: {file.problem}"
