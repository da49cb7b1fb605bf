"""An agent without Spark: the real spool, sender and poller of commands, and failures of no record.

It answers each command to resume a task once, also if the command arrives again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from uuid import UUID

import msgspec

from arrester.agents.config import AgentConfig
from arrester.agents.transport.connection import Connection
from arrester.domain.commands import agent_versions
from arrester.domain.events import (
    Body,
    CommandApplied,
    CommandDelivered,
    CommandIssued,
    Event,
    EventData,
    Failure,
    FinalResponse,
    InstanceStarted,
    RecordFailed,
    RecordsHeld,
    ResumeHow,
    Run,
    TaskPaused,
    TaskResumed,
    ThreadStarted,
)
from arrester.domain.identity import uuids
from arrester.domain.state.states import InstanceStatus
from arrester.domain.wire import codec

PIPELINE = "departures"
_STACK_LINES = 20


class SimulatedAgent:
    """One instance of an application, with one pipeline over some tasks."""

    def __init__(
        self, application: str, *, redis_url: str, server_key: str, spool: Path, tasks: int = 4
    ) -> None:
        self.application = application
        self.instance = uuids.uuid7(datetime.now(UTC))
        self.run = Run(pipeline=PIPELINE, checkpoint=str(self.instance), epoch=1)
        self.tasks = [f"T{number:03d}" for number in range(tasks)]
        #: The positions of the failed records that were put, in order.
        self.failed: list[int] = []
        #: The commands that the poller passed on, repeated ones too.
        self.received: list[UUID] = []
        self._positions = count()
        self._random = Random(application)
        self._answered: set[UUID] = set()
        self._lock = threading.Lock()
        environment: Mapping[str, str] = {
            "REDIS_URL": redis_url,
            "ARRESTER_SPOOL": str(spool),
            "ARRESTER_SERVER_KEY": server_key,
        }
        config = AgentConfig.read(application, {}, environment=environment)
        self.connection = Connection(config, self.instance)

    def start(self) -> None:
        """Report the start, and begin to send and to fetch commands."""
        versions = {agent_versions.REPORTED_AS: str(agent_versions.VERSION)}
        self.put(InstanceStarted(host="fleet", pid=7, versions=versions), ThreadStarted())
        self.connection.start_sending(heartbeat=self._heartbeat)
        self.connection.start_polling(receive=self._receive, on_latched=lambda: None)

    def put(self, *data: EventData, caused_by: UUID | None = None) -> None:
        """Put events into the spool as one batch."""
        now = datetime.now(UTC)
        self._put([self._event(now, each, caused_by=caused_by) for each in data])

    def fail(self, count: int) -> None:
        """Report failed records as one batch, each with its body."""
        with self._lock:
            now = datetime.now(UTC)
            events = []
            for position in (next(self._positions) for _ in range(count)):
                task, cause = self._random.choice(self.tasks), self._random.randrange(20)
                data = RecordFailed(
                    task=task,
                    position=position,
                    failure=_failure(cause),
                    response=FinalResponse.CONTINUE,
                )
                self.failed.append(position)
                events.append(self._event(now, data, body=self._body(position, cause)))
            self._put(events)

    def pause(self, task: str) -> None:
        """Report that a task has paused at a failed record."""
        with self._lock:
            position = next(self._positions)
            self.failed.append(position)
            cause = _failure(0)
            self.put(
                RecordFailed(
                    task=task, position=position, failure=cause, response=FinalResponse.PAUSE
                ),
                TaskPaused(task=task, position=position, failure=cause),
                RecordsHeld(task=task, held=1, first_position=position),
            )

    def close(self) -> bool:
        """Send what is left; return whether Redis has all of it."""
        return self.connection.close()

    def _put(self, events: Sequence[Event]) -> None:
        self.connection.spool.put(uuids.uuid7(datetime.now(UTC)), events)

    def _event(
        self,
        now: datetime,
        data: EventData,
        *,
        caused_by: UUID | None = None,
        body: Body | None = None,
    ) -> Event:
        run = None if isinstance(data, InstanceStarted) else self.run
        return Event(
            occurred_at=now,
            data=data,
            instance=self.instance,
            run=run,
            caused_by=caused_by,
            body=body,
        )

    def _body(self, position: int, cause: int) -> Body:
        record = {"flight": f"B6 {position}", "tail": f"{self._random.getrandbits(64):x}"}
        lines = (f'  File "/srv/jobs/step_{cause}.py", line {each}' for each in range(_STACK_LINES))
        return Body(record=record, stack="\n".join(lines))

    def _heartbeat(self) -> bytes:
        return msgspec.json.encode(
            codec.Heartbeat(
                at=datetime.now(UTC),
                status=InstanceStatus.RUNNING.value,
                runs=(self.run,),
                spooled=self.connection.spool.events,
            )
        )

    def _receive(self, command: CommandIssued, _ahead: timedelta) -> None:
        self.received.append(command.command)
        if command.command in self._answered or command.task is None:
            return
        self._answered.add(command.command)
        self.put(CommandDelivered(command=command.command))
        self.put(
            TaskResumed(task=command.task, how=ResumeHow.RETRY, actor=command.actor),
            RecordsHeld(task=command.task, held=0),
            CommandApplied(command=command.command),
            caused_by=command.command,
        )


def _failure(cause: int) -> Failure:
    return Failure(
        stage="process:plausible",
        exception_class="ImplausibleDelay",
        message=f"left {1000 + cause} minutes late, more than 900",
        fingerprint=f"1-{cause:016x}",
        frame=f"flights.py:{cause + 10} in plausible",
    )
