"""Detect differences between the agent's and the server's task states, by an order-independent
hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.domain.events import StateReported, TaskReported
from arrester.domain.state.states import TaskState

#: Heartbeats with an equal pair of different hashes before a report is requested.
BEATS_BEFORE_REPORT = 3
#: Tasks in one event of a report.
TASKS_PER_EVENT = 200
_BYTES = 8
_MODULUS: int = 2 ** (8 * _BYTES)


def weight(tasks: Iterable[TaskState]) -> int:
    """Return what the PAUSED and DEAD tasks add to the hash; the runs of an instance add
    up."""
    return sum(map(_weight, tasks)) % _MODULUS


def state_hash(weights: Iterable[int]) -> str:
    """Return the hash over all runs of an instance, as in its heartbeat."""
    return f"{sum(weights) % _MODULUS:016x}"


def _weight(task: TaskState) -> int:
    if not task.status.stopped:
        return 0
    text = f"{task.id.digest} {task.status} {task.position}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_BYTES).digest(), "big")


class Difference(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    # The names in Redis.
    rename={"agent_hash": "theirs", "server_hash": "ours", "report_id": "asked"},
):
    """For how many heartbeats the same two hashes have differed."""

    agent_hash: str
    server_hash: str
    #: The last heartbeat that counted.
    beat: datetime
    beats: int = 1
    #: The requested report, so that it is requested once.
    report_id: UUID | None = None

    @property
    def is_report_due(self) -> bool:
        """Whether events in transit would have arrived: a report is due."""
        return self.beats >= BEATS_BEFORE_REPORT and self.report_id is None


def compare_hashes(
    before: Difference | None, *, agent_hash: str | None, server_hash: str, beat: datetime
) -> Difference | None:
    """Return the difference after a heartbeat; None if there is none.

    A hash that changes on either side is work in progress: the count starts again.
    """
    if agent_hash is None or agent_hash == server_hash:
        return None
    if before is None or (before.agent_hash, before.server_hash) != (agent_hash, server_hash):
        return Difference(agent_hash=agent_hash, server_hash=server_hash, beat=beat)
    if beat <= before.beat:
        return before
    return replace(before, beat=beat, beats=before.beats + 1)


def report(tasks: Iterable[TaskState]) -> list[StateReported]:
    """Return the state of the tasks of one run, in parts that together cover all of them."""
    reported = sorted(
        (task for task in tasks if task.status.stopped or task.held),
        key=lambda task: task.id.digest,
    )
    parts = [
        reported[begin : begin + TASKS_PER_EVENT]
        for begin in range(0, len(reported), TASKS_PER_EVENT)
    ] or [[]]
    bounds = [None, *(part[-1].id.digest for part in parts[:-1]), None]
    return [
        StateReported(tasks=tuple(map(_reported, part)), above=above, through=through)
        for part, above, through in zip(parts, bounds[:-1], bounds[1:], strict=True)
    ]


def _reported(task: TaskState) -> TaskReported:
    # No task of an agent is DISMISSED.
    status = cast("Literal['RUNNING', 'PAUSED', 'DEAD']", task.status.value)
    return TaskReported(
        task=task.id.key,
        status=status,
        position=task.position,
        failure=task.failure,
        held=task.held,
    )
