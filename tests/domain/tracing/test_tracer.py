"""When spans are sent, and that sending them never breaks, blocks or changes what is traced."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from arrester.domain.tracing import ids, tracer
from arrester.domain.tracing.tracer import Span, tracer_of
from tests.histories import RUN
from tests.otlp_receiver import collecting
from tests.services import REPOSITORY

NOW = datetime(2026, 11, 30, 15, 30, tzinfo=UTC)
ID = ids.of_decision("flights", RUN, NOW)
SPAN = Span(name="decide", id=ID, began=NOW, ended=NOW + timedelta(seconds=2))
CHILD = Span(name="part", id=ids.child_of(ID, "part"), parent=ID, began=NOW, ended=NOW)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Give each test a process without spans."""
    tracer.close("flights")
    yield monkeypatch
    tracer.close("flights")


def set_all(environment: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)


def test_spans_have_derived_ids_times_and_the_name_of_the_service(
    environment: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        set_all(environment, **collector.variables)
        sending = tracer_of("flights")
        assert sending is not None
        sending.record([SPAN, CHILD])
        tracer.close("flights")
    decided, part = collector.spans
    assert (decided.service, decided.trace, decided.parent) == ("flights", ID.trace_hex, "")
    assert (part.trace, part.parent) == (decided.trace, decided.span)


def test_the_name_of_the_environment_precedes_ours(environment: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        set_all(environment, OTEL_SERVICE_NAME="etl", **collector.variables)
        sending = tracer_of("flights")
        assert sending is not None
        sending.record([SPAN])
        tracer.close("flights")
    assert [each.service for each in collector.spans] == ["etl"]


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_no_spans_are_sent_unless_they_are_asked_for(
    environment: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    set_all(environment, **variables)
    assert tracer_of("flights") is None


def test_without_the_variables_the_sdk_is_not_imported() -> None:
    code = (
        "import sys; from arrester.domain.tracing.tracer import tracer_of;"
        "assert tracer_of('flights') is None and 'opentelemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, timeout=60)


@pytest.mark.parametrize(
    ("variables", "logged"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "'zipkin' is ignored; only otlp is sent"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "the protocol is grpc; only http/protobuf is sent",
        ),
    ],
)
def test_what_is_not_supported_is_logged(
    environment: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    logged: str,
) -> None:
    set_all(environment, **variables)
    assert tracer_of("flights") is None
    assert logged in caplog.text


def test_a_missing_package_is_logged_once(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_all(environment, OTEL_TRACES_EXPORTER="otlp")
    environment.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert tracer_of("flights") is None
    assert tracer_of("flights") is None
    assert caplog.text.count("pip install 'arrester[traces]'") == 1


def test_the_provider_of_the_application_is_used_and_stays_open(
    environment: pytest.MonkeyPatch,
) -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    environment.setattr(trace, "get_tracer_provider", lambda: provider)
    with provider.get_tracer("application").start_as_current_span("its own") as own:
        sending = tracer_of("flights")
        assert sending is not None
        sending.record([SPAN])
    tracer.close("flights")
    with provider.get_tracer("application").start_as_current_span("after it"):
        pass
    decided, *others = exporter.get_finished_spans()
    assert [each.name for each in others] == ["its own", "after it"]
    assert decided.context is not None and decided.context.trace_id == ID.trace
    # The application's spans keep their ids; ours is linked to the one in progress.
    assert others[0].context is not None and others[0].context.trace_id != ID.trace
    assert [link.context for link in decided.links] == [own.get_span_context()]


def test_both_sides_sample_the_same_traces(environment: pytest.MonkeyPatch) -> None:
    sampled = {}
    for side, name in (("agent", "decide"), ("server", "part")):
        with collecting() as collector:
            set_all(
                environment,
                OTEL_TRACES_SAMPLER="parentbased_traceidratio",
                OTEL_TRACES_SAMPLER_ARG="0.5",
                **collector.variables,
            )
            sending = tracer_of("flights")
            assert sending is not None
            for minute in range(40):
                id = ids.of_decision("flights", RUN, NOW + timedelta(minutes=minute))
                child = Span(
                    name="part", id=ids.child_of(id, "part"), parent=id, began=NOW, ended=NOW
                )
                root = Span(name="decide", id=id, began=NOW, ended=NOW)
                sending.record([root if name == "decide" else child])
            tracer.close("flights")
        sampled[side] = {each.trace for each in collector.spans}
    assert sampled["agent"] == sampled["server"]
    assert 0 < len(sampled["agent"]) < 40


def test_the_last_spans_are_sent_at_the_end_of_a_process() -> None:
    code = (
        "from tests.domain.tracing.test_tracer import SPAN, tracer_of;"
        "tracer_of('flights').record([SPAN])"
    )
    with collecting() as collector:
        # Longer than the process lives.
        variables = {**os.environ, **collector.variables, "OTEL_BSP_SCHEDULE_DELAY": "60000"}
        command = [sys.executable, "-c", code]
        subprocess.run(command, cwd=REPOSITORY, env=variables, check=True, timeout=60)
        assert [each.name for each in collector.spans] == ["decide"]


def test_a_collector_that_does_not_answer_blocks_nothing() -> None:
    """The queue of the SDK is full, and the last request waits for an answer.

    In a process of its own: the SDK goes on trying in its thread, with random delays.
    """
    code = (
        "from arrester.domain.tracing import tracer;"
        "from tests.domain.tracing.test_tracer import SPAN;"
        "sending = tracer.tracer_of('flights'); assert sending is not None;"
        "sending.record([SPAN] * 1000); tracer.close('flights')"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
            "OTEL_BSP_MAX_QUEUE_SIZE": "10",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "5",
            "PYTHONPATH": str(REPOSITORY),
        }
        command = [sys.executable, "-c", code]
        environment = os.environ | variables
        subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, timeout=120)


def test_what_the_sdk_refuses_is_left_out(environment: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        set_all(environment, **collector.variables)
        sending = tracer_of("flights")
        assert sending is not None

        def spans() -> Iterator[Span]:
            yield SPAN
            raise ValueError("a fault of ours")

        sending.record(spans())
        tracer.close("flights")
    assert [each.name for each in collector.spans] == ["decide"]
