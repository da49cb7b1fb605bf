"""The progress of a redrive, and the dead letters that are kept for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import connection
from msgspec import UNSET

from arrester.controlplane import models
from arrester.controlplane.models import DeadLetterStatus
from arrester.controlplane.views import row_mapping
from arrester.controlplane.views.dead_letter_selection import OpenDeadLetter
from arrester.domain.commands.redrive import RedriveProgress, WaitingRecords
from arrester.domain.events import ChosenDeadLetters, RedriveSlice
from arrester.domain.identity.dead_letter_ids import ID_BYTES, split_ids
from arrester.domain.state.states import CommandState, CommandStatus, TaskStatus, if_set

#: They are kept for this time at least: the command is issued after them.
_KEPT: Final = timedelta(hours=1)
#: The most stopped tasks that are named, and the most characters of each name.
_NAMED_TASKS: Final = 3
_NAME: Final = 80
#: Of a task that processes nothing until a person or a new run lets it continue.
_IS_STOPPED: Final = f"task.status <> '{TaskStatus.RUNNING}'"


def keep(application: str, id: UUID, selected: Sequence[OpenDeadLetter]) -> None:
    """Keep the dead letters of a redrive or test before its command is issued."""
    times = [each.occurred_at for each in selected]
    models.RedriveSelection.objects.create(
        command=id,
        application=application,
        kept_at=datetime.now(UTC),
        ids=b"".join(each.id.bytes for each in selected),
        since=min(times),
        until=max(times),
    )


def forget_ended(application: str, *, now: datetime) -> None:
    """Delete the dead letters of redrives that have ended, with each command that they issued."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM redrive_selection AS kept WHERE application = %s AND kept_at < %s"
            " AND NOT EXISTS (SELECT FROM command WHERE command.open"
            " AND kept.command IN (command.id, command.part_of))",
            [application, now - _KEPT],
        )


def chosen(command: CommandState) -> ChosenDeadLetters | None:
    """Return the dead letters of a part of a redrive, or of a test; None if they are not kept any
    more.

    Those that a person has discarded since are left out.
    """
    if command.slice is UNSET:
        return None
    redrive, patch = if_set(command.part_of), if_set(command.patch)
    kept = models.RedriveSelection.objects.filter(command=redrive or command.id).first()
    if kept is None:
        return None
    if redrive is not None:
        parents = row_mapping.COMMANDS.load("id = %s", [redrive])
        if not parents or parents[0].redrive is UNSET:
            return None
        patch = parents[0].redrive.patch
    first, end = command.slice.first, command.slice.first + command.slice.count
    ids = split_ids(bytes(kept.ids[first * ID_BYTES : end * ID_BYTES]))
    discarded = _discarded(command.application, ids)
    return ChosenDeadLetters(
        ids=b"".join(each for each in ids if each not in discarded),
        since=kept.since,
        until=kept.until,
        patch=patch,
    )


def _discarded(application: str, ids: Sequence[bytes]) -> set[bytes]:
    rows = models.DeadLetter.objects.filter(
        stream__in=models.Stream.objects.filter(application=application).values("id"),
        id__in=[UUID(bytes=each) for each in ids],
        status=DeadLetterStatus.DISCARDED,
    )
    return {each.bytes for each in rows.values_list("id", flat=True)}


def progress_of(command: CommandState) -> RedriveProgress:
    """Return what a redrive has achieved so far."""
    commands = row_mapping.COMMANDS.load("part_of = %s", [command.id])
    slices: dict[RedriveSlice, list[CommandState]] = {}
    for each in commands:
        if each.slice is not UNSET:
            slices.setdefault(each.slice, []).append(each)
    counts = redrive_totals(command.application, command.id)
    issued = opened = last_issued = 0
    issued_at = not_applied = None
    for part, same in slices.items():
        statuses = {each.status: each.outcome for each in same}
        if statuses.keys() == {CommandStatus.EXPIRED}:
            continue
        issued += part.count
        first_at = min(each.issued_at for each in same)
        if issued_at is None or first_at > issued_at:
            issued_at, last_issued = first_at, part.count
        if not all(status.final for status in statuses):
            opened += part.count
        elif CommandStatus.APPLIED not in statuses:
            status = min(statuses.keys() - {CommandStatus.EXPIRED})
            not_applied = f"{status}: {statuses[status]}"
    return RedriveProgress(
        commands=len(commands),
        issued=issued,
        last_issued=last_issued,
        issued_at=issued_at,
        open=opened,
        not_applied=not_applied,
        redriven=counts[DeadLetterStatus.REDRIVEN],
        processed=counts[DeadLetterStatus.PROCESSED],
        failed_again=counts[DeadLetterStatus.FAILED_AGAIN],
        discarded=counts[DeadLetterStatus.DISCARDED],
        waiting=_waiting(command) if counts[DeadLetterStatus.REDRIVEN] else WaitingRecords(),
    )


def _waiting(command: CommandState) -> WaitingRecords:
    """Return the redriven dead letters whose tasks are stopped."""
    of_task = (
        "SELECT task.digest, count(*) AS records, count(*) FILTER"
        " (WHERE each.position = (task.state::json ->> 'position')::bigint) AS again"
        " FROM dead_letter AS each JOIN task ON task.digest = each.task"
        f" WHERE each.redrive = %s AND each.status = {DeadLetterStatus.REDRIVEN:d} AND each.stream"
        f" = (SELECT id FROM stream WHERE application = %s) AND {_IS_STOPPED} GROUP BY 1"
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT digest, sum(records) OVER (), count(*) OVER (), sum(again) OVER ()"
            f" FROM ({of_task}) AS of_task ORDER BY records DESC, digest LIMIT %s",
            [command.id, command.application, _NAMED_TASKS],
        )
        rows = cursor.fetchall()
    if not rows:
        return WaitingRecords()
    _, records, tasks, again = rows[0]
    names = _names([digest for digest, *_ in rows])
    return WaitingRecords(records=int(records), tasks=tasks, names=names, stopped_again=int(again))


def would_wait(selected: Sequence[OpenDeadLetter], stopped: Collection[UUID]) -> WaitingRecords:
    """Return those of some dead letters whose tasks are stopped."""
    counted = Counter(each.task for each in selected if each.task in stopped)
    first = [task for task, _ in counted.most_common(_NAMED_TASKS)]
    return WaitingRecords(records=counted.total(), tasks=len(counted), names=_names(first))


def stopped_tasks(tasks: Collection[UUID]) -> set[UUID]:
    """Return those of some tasks that are stopped."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT digest FROM task WHERE digest = ANY(%s::uuid[]) AND {_IS_STOPPED}",
            [list(tasks)],
        )
        return {digest for (digest,) in cursor.fetchall()}


def _names(digests: Sequence[UUID]) -> tuple[str, ...]:
    """Return the printed names of tasks, in this order."""
    found = row_mapping.TASKS.load_readable("digest = ANY(%s::uuid[])", [list(digests)])
    names = {UUID(hex=each.id.digest): each.id.printed for each in found}
    return tuple(_short(names[each]) for each in digests if each in names)


def _short(name: str) -> str:
    """Return a name of a task that fits a sentence: a key can be long."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def redrive_totals(application: str, redrive: UUID) -> dict[DeadLetterStatus, int]:
    """Return the number of the dead letters that a redrive took, by status.

    One that was redriven once more later is not counted.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT status, count(*) FROM dead_letter WHERE redrive = %s AND stream ="
            " (SELECT id FROM stream WHERE application = %s) GROUP BY status",
            [redrive, application],
        )
        rows = cursor.fetchall()
    return dict.fromkeys(DeadLetterStatus, 0) | {
        DeadLetterStatus(status): int(count) for status, count in rows
    }
