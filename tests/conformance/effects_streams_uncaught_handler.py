"""A thread that dies and is replaced, on Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from arrester import Agent, Ending, StartRefused, UncaughtAnswer
from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndFail
from arrester.domain import events
from arrester.domain.commands.reactions import needing_reaction, reaction_to
from arrester.domain.events import CommandIssued, CommandKind, EventData, StoredEvent
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import ThreadStatus
from arrester.domain.state.stream_state import StreamState, empty
from arrester.domain.wire import command_codec
from tests.agents.pipeline_bench import Bench, sink_to
from tests.agents.redis_server import FoldingSide, running
from tests.conformance.cases import Case
from tests.conformance.simulation import UNCAUGHT_ANSWERS
from tests.patience import PATIENCE_SECONDS, wait_until

Row = dict[str, Any]


class Replacing:
    """An uncaught exception handler that answers REPLACE_THREAD."""

    def __init__(self) -> None:
        self.calls: list[BaseException] = []

    def handle(self, exception: BaseException) -> UncaughtAnswer:
        self.calls.append(exception)
        return UncaughtAnswer.REPLACE_THREAD


def failing_first(place: str, times: int = 1) -> Any:
    """Return a step whose first `times` calls fail; each call leaves a file."""

    def check(row: Row) -> Row:
        import os
        import uuid

        os.makedirs(place, exist_ok=True)
        fails = len(os.listdir(place)) < times
        open(f"{place}/{uuid.uuid4()}-{row['position']}", "w").close()
        if fails:
            raise ValueError("one of the first calls")
        return row

    return check


def replaced(
    bench: Bench, values: list[str], *, times: int = 1
) -> tuple[Agent, Replacing, list[str]]:
    """Run `values` through threads of which the first ones die; return the written values, too."""
    handler = Replacing()
    for position, value in enumerate(values):
        bench.add(("0_0", position, value))
    with Agent(bench.spark, application="tests", on_uncaught=handler) as agent:
        pipeline = bench.checking(
            failing_first(str(bench.folder / "calls"), times), LogAndFail(), runner=agent
        )
        first: Any = pipeline.start(bench.checkpoint)
        wait_until(lambda: bench.committed() >= len(values) - 1)
        assert first.state is ThreadStatus.DEAD
    written = sorted(bench.written(), key=lambda each: each[1])
    return agent, handler, [values[position] for _, position in written]


def check_single(case: Case, bench: Bench) -> None:
    assert UNCAUGHT_ANSWERS[case.given["response"]] is UncaughtAnswer.REPLACE_THREAD
    agent, handler, _ = replaced(bench, ["A"], times=case.given["first_n_handler_calls_fail"])
    assert len(handler.calls) == case.expect["handler_calls"]
    assert agent.state == case.expect.get("after_close", agent.state)
    calls = list((bench.folder / "calls").iterdir())
    assert len(calls) == case.expect["record_processed_times"]


def check_no_loss(case: Case, bench: Bench) -> None:
    assert UNCAUGHT_ANSWERS[case.given["response"]] is UncaughtAnswer.REPLACE_THREAD
    assert case.given["first_processing_of_first_record"] == "fails"
    _, _, written = replaced(bench, case.given["records"])
    assert written == case.expect["output"]


def check_default_handler(case: Case, bench: Bench) -> None:
    assert UNCAUGHT_ANSWERS[case.given["response"]] is UncaughtAnswer.REPLACE_THREAD
    assert case.given["jvm_default_handler"] == "fails the test if called"
    called: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", called.append)
        replaced(bench, ["A"])
    assert bool(called) is case.expect["jvm_default_handler_called"]


class Server:
    """A server between agents and a real Redis that applies the rules of the domain."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._side = FoldingSide(client, application="tests")

    def fold(self) -> StreamState:
        """Fold the events and relay the commands that follow from them."""
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
        reaction = reaction_to(needing_reaction(stored), state, now=datetime.now(UTC))
        for event in [] if reaction is None else reaction[1]:
            self.relay(event.data)
        return state

    def relay(self, data: EventData) -> None:
        if isinstance(data, CommandIssued):
            body = command_codec.encode_command(data)
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
    """One of the instances answers SHUTDOWN_APPLICATION; later another one tries to start."""
    calls = bench.folder / "calls"
    for position in range(2):
        bench.add(("0_0", position, "A"))
    with server_of(bench) as server:
        answer = UNCAUGHT_ANSWERS[case.given["response"]]
        agents = [
            Agent(bench.spark, application="tests", on_uncaught=answer)
            for _ in range(case.given["clients"])
        ]
        failing, *others = agents
        # The failing pipeline is one of the threads of its agent.
        idle = [agent for agent in agents for _ in range(case.given["threads_each"])][1:]
        for number, agent in enumerate(idle):
            place = str(bench.folder / f"idle-{number}")
            source = bench.source()
            name = f"idle-{number}"
            pipeline = define(name, source, task="task", position="position", runner=agent)
            pipeline = pipeline.process("check", lambda row: row)
            pipeline.write(sink_to(Path(place))).start(f"{place}-checkpoint")
        wait_until(lambda: len(server.errors()) == len({*idle}))
        bench.checking(failing_first(str(calls)), LogAndFail(), runner=failing).start(
            bench.checkpoint
        )
        final = case.expect["all_clients_final_state"]
        wait_until(lambda: server.errors() == [final] * len(agents))
        assert failing.await_termination(PATIENCE_SECONDS, raises=False) is Ending.FAILED
        assert {agent.await_termination(PATIENCE_SECONDS) for agent in others} == {Ending.SHUT_DOWN}
        assert [agent.state.value for agent in agents] == [final] * len(agents)
        assert len(list(calls.iterdir())) == case.expect["records_processed"]
        with pytest.raises(StartRefused, match="tests is LATCHED"):
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
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.SHUT_DOWN
        assert case.expect["receiver"].endswith(agent.state.value)


CHECKS = {
    ("given.clients",): check_application,
    ("given.assignment_error_code",): check_receiver,
    ("given.first_n_handler_calls_fail",): check_single,
    ("given.first_processing_of_first_record",): check_no_loss,
    ("given.jvm_default_handler",): check_default_handler,
}
