"""A thread that dies and is replaced, on Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from arrester import Agent, ApplicationLatched, Ending, UncaughtAnswer
from arrester.agents.handlers import LogAndFail
from arrester.controlplane.domain import events
from arrester.controlplane.domain.commands.reactions import asks, follow
from arrester.controlplane.domain.events import CommandIssued, CommandKind, EventData, StoredEvent
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.state.states import ThreadStatus
from arrester.controlplane.domain.state.stream_state import StreamState, empty
from arrester.controlplane.domain.wire import codec
from tests.agents.engine.bench import Bench, sink_to, wait_until
from tests.agents.redis_server import FoldingSide, running
from tests.conformance.cases import Case

Row = dict[str, Any]


class Replacing:
    """The uncaught exception handler of the cases."""

    def __init__(self) -> None:
        self.calls: list[BaseException] = []

    def handle(self, exception: BaseException) -> UncaughtAnswer:
        self.calls.append(exception)
        return UncaughtAnswer.REPLACE_THREAD


def failing_once(place: str) -> Any:
    """Return a step whose first call fails; each call leaves a file."""

    def check(row: Row) -> Row:
        import os
        import uuid

        os.makedirs(place, exist_ok=True)
        first = not os.listdir(place)
        open(f"{place}/{uuid.uuid4()}-{row['position']}", "w").close()
        if first:
            raise ValueError("the first time")
        return row

    return check


def replaced(bench: Bench, values: list[str]) -> tuple[Replacing, list[str]]:
    """Run `values` through a thread that dies once; return the handler and what was written."""
    handler = Replacing()
    for position, value in enumerate(values):
        bench.add(("0_0", position, value))
    with Agent(bench.spark, application="tests", on_uncaught=handler) as agent:
        pipeline = bench.checking(
            failing_once(str(bench.folder / "calls")), LogAndFail(), runner=agent
        )
        first: Any = pipeline.start(bench.checkpoint)
        wait_until(lambda: bench.committed() >= len(values) - 1)
        assert first.state is ThreadStatus.DEAD
    written = sorted(bench.written(), key=lambda each: each[1])
    return handler, [values[position] for _, position in written]


def check_single(case: Case, bench: Bench) -> None:
    assert case.given["threads"] == case.given["first_n_handler_calls_fail"] == 1
    handler, _ = replaced(bench, ["A"])
    assert len(handler.calls) == case.expect["handler_calls"]
    calls = list((bench.folder / "calls").iterdir())
    assert len(calls) == case.expect["record_processed_times"]


def check_no_loss(case: Case, bench: Bench) -> None:
    _, written = replaced(bench, case.given["records"])
    assert written == case.expect["output"]


def check_default_handler(case: Case, bench: Bench) -> None:
    called: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", called.append)
        replaced(bench, ["A"])
    assert bool(called) is case.expect["jvm_default_handler_called"]


class Server:
    """Plays the server between agents and a real Redis, by the rules of the domain."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._side = FoldingSide(client, application="tests")

    def fold(self) -> StreamState:
        """Fold what has come, and relay what follows from it."""
        self._side.take()
        stored = [
            StoredEvent(
                application="tests",
                sequence=sequence,
                received_at=event.occurred_at,
                batch=UUID(int=sequence),
                event=event,
            )
            for sequence, event in enumerate(self._side.events, start=1)
        ]
        state = empty("tests").fold(stored)
        for request in asks(stored):
            for event in follow(request, state, now=datetime.now(UTC)):
                self.relay(event.data)
        return state

    def relay(self, data: EventData) -> None:
        if isinstance(data, CommandIssued):
            body = codec.encode_command(data)
            self._client.xadd(
                redis_keys.commands("tests"), {"command": str(data.command), "body": body}
            )
        elif isinstance(data, events.ApplicationLatched):
            self._client.set(redis_keys.state("tests"), "LATCHED")

    def errors(self) -> list[str]:
        return [each.status.value for each in self.fold().instances.values()]


@contextmanager
def server_of(bench: Bench) -> Iterator[Server]:
    with running() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDIS_URL", server.url)
        patch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
        yield Server(server.client)


def check_application(case: Case, bench: Bench) -> None:
    """One of two instances answers SHUTDOWN_APPLICATION; a third one starts after that."""
    calls = bench.folder / "calls"
    for position in range(2):
        bench.add(("0_0", position, "A"))
    with server_of(bench) as server:
        answer = UncaughtAnswer[case.given["response"]]
        agents = [
            Agent(bench.spark, application="tests", on_uncaught=answer)
            for _ in range(case.given["clients"])
        ]
        failing, other = agents
        assert case.given["threads_each"] == 1
        elsewhere = bench.define(runner=other).process("check", lambda row: row)
        elsewhere.write(sink_to(bench.folder / "other")).start(str(bench.folder / "checkpoint-b"))
        wait_until(lambda: len(server.errors()) == 1)
        bench.checking(failing_once(str(calls)), LogAndFail(), runner=failing).start(
            bench.checkpoint
        )
        final = case.expect["all_clients_final_state"]
        wait_until(lambda: server.errors() == [final] * len(agents))
        assert [agent.await_termination(60) for agent in agents] == [
            Ending.FAILED,
            Ending.SHUT_DOWN,
        ]
        assert [agent.state.value for agent in agents] == [final] * len(agents)
        assert len(list(calls.iterdir())) == case.expect["records_processed"]
        with pytest.raises(ApplicationLatched, match="tests is LATCHED"):
            Agent(bench.spark, application="tests").__enter__()


def check_receiver(case: Case, bench: Bench) -> None:
    assert "SHUTDOWN_REQUESTED" in case.given["assignment_error_code"]
    now = datetime.now(UTC)
    with server_of(bench) as server, Agent(bench.spark, application="tests") as agent:
        server.relay(
            CommandIssued(
                command=UUID(int=7),
                kind=CommandKind.SHUT_DOWN_APPLICATION,
                actor="instance",
                reason="it broke",
                instances=(agent.instance,),
                error=True,
                expires_at=now + timedelta(minutes=1),
            )
        )
        assert agent.await_termination(60) is Ending.SHUT_DOWN
        assert case.expect["receiver"].endswith(agent.state.value)


CHECKS = {
    "shutdown-application-single": check_application,
    "shutdown-application-receiver": check_receiver,
    "replace-single-thread": check_single,
    "replace-no-loss": check_no_loss,
    "replace-does-not-reach-jvm-default-handler": check_default_handler,
}
