"""Send spans to OpenTelemetry, if its standard environment variables ask for it.

A span is recorded when it is over, with its times and its id. Nothing here raises or waits: the
SDK queues spans, and drops them if its queue is full.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from arrester.domain.tracing.ids import SpanId

_log = logging.getLogger("arrester.tracing")

#: The name of the server as a service; agents have that of their application.
SERVER = "arrester"
#: The end of a process waits so long for its last spans.
FLUSH_SECONDS = 2.0
_PACKAGES = "pip install 'arrester[traces]'"
#: Variables that ask for spans, unless OTEL_TRACES_EXPORTER names others.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP = "http/protobuf"

Attribute = str | int | float | bool


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A span that is over."""

    name: str
    id: SpanId
    began: datetime
    ended: datetime
    parent: SpanId | None = None
    #: Spans of other traces.
    links: tuple[SpanId, ...] = ()
    attributes: Mapping[str, Attribute | None] = {}
    #: Why it failed; None: it did not.
    error: str | None = None


class Tracer:
    """Records spans with a tracer of the SDK, whose ids are those of the spans."""

    def __init__(self, provider: Any, *, is_own: bool) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        next_id = self._next_id = threading.local()

        class DerivedIds(RandomIdGenerator):
            def generate_trace_id(self) -> int:
                return int(next_id.value.trace)

            def generate_span_id(self) -> int:
                return int(next_id.value.span)

        self._api = trace
        self._provider = provider
        # A provider of the application stays open.
        self._must_close = is_own
        if is_own:
            atexit.register(self.close)
        # The provider keeps one tracer for each name: those of others have their own ids.
        self._tracer = provider.get_tracer("arrester")
        self._tracer.id_generator = DerivedIds()

    def record(self, spans: Iterable[Span]) -> None:
        """Queue spans; what fails is left out."""
        try:
            for span in spans:
                self._record(span)
        except Exception:  # tracing must not break what it traces
            _log.debug("spans are left out", exc_info=True)

    def _record(self, span: Span) -> None:
        api = self._api
        context = api.set_span_in_context(api.INVALID_SPAN)
        if span.parent is not None:
            parent = api.NonRecordingSpan(self._context(span.parent, span.name))
            context = api.set_span_in_context(parent)
        current = api.get_current_span().get_span_context()
        links = [api.Link(self._context(each, span.name)) for each in span.links]
        links += [api.Link(current)] if current.is_valid else []
        self._next_id.value = span.id
        made = self._tracer.start_span(
            span.name,
            context=context,
            attributes={
                name: value for name, value in span.attributes.items() if value is not None
            },
            links=links,
            start_time=_nanoseconds(span.began),
        )
        if span.error is not None:
            made.set_status(api.Status(api.StatusCode.ERROR, span.error))
        made.end(end_time=_nanoseconds(max(span.began, span.ended)))

    def _context(self, id: SpanId, name: str) -> Any:
        """Return the context of another span, which is sampled if a root of its trace is.

        It may be of another process: samplers decide by the trace id, so both decide alike.
        """
        sampled = self._tracer.sampler.should_sample(None, id.trace, name).decision.is_sampled()
        flags = self._api.TraceFlags(int(sampled))
        return self._api.SpanContext(id.trace, id.span, is_remote=True, trace_flags=flags)

    def close(self) -> None:
        """Send the last spans within some seconds."""
        if not self._must_close:
            return
        self._must_close = False
        atexit.unregister(self.close)
        # It waits for a request in progress to a collector that does not answer.
        thread = threading.Thread(target=self._shut_down, name="arrester-tracing", daemon=True)
        thread.start()
        thread.join(FLUSH_SECONDS)

    def _shut_down(self) -> None:
        try:
            self._provider.shutdown()
        except Exception:
            _log.debug("the last spans are left out", exc_info=True)


_tracers: dict[str, Tracer | None] = {}
_lock = threading.Lock()


def tracer_of(service: str) -> Tracer | None:
    """Return the tracer of a service in this process; None if no spans are wanted."""
    try:
        return _tracers[service]
    except KeyError:
        with _lock:
            if service not in _tracers:
                _tracers[service] = _open(service, os.environ)
            return _tracers[service]


def close(service: str) -> None:
    """Send the last spans of a service; the next `tracer_of` reads the environment again."""
    with _lock:
        tracer = _tracers.pop(service, None)
    if tracer is not None:
        tracer.close()


def _open(service: str, environment: Mapping[str, str]) -> Tracer | None:
    """Return the tracer that the environment or the application asks for."""
    if _is_true(environment.get("OTEL_SDK_DISABLED", "")):
        return None
    try:
        provider = _provider_of_application()
        if provider is not None:
            return Tracer(provider, is_own=False)
        if not _asks_for_spans(environment):
            return None
        return Tracer(_new_provider(service, environment), is_own=True)
    except ImportError as exc:
        _log.warning("no spans are sent: %s is missing: %s", exc.name, _PACKAGES)
    except Exception as exc:  # a setting that the SDK refuses
        _log.warning("no spans are sent: %s: %s", type(exc).__name__, exc)
    return None


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def _provider_of_application() -> Any:
    """Return the tracer provider that the application has set; None if it has set none."""
    sdk = sys.modules.get("opentelemetry.sdk.trace")
    if sdk is None:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    return provider if isinstance(provider, sdk.TracerProvider) else None


def _asks_for_spans(environment: Mapping[str, str]) -> bool:
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if not exporters and not any(environment.get(name) for name in _ENDPOINTS):
        return False
    wanted = {each.strip() for each in exporters.split(",")} if exporters else {"otlp"}
    for other in sorted(wanted - {"otlp", "none"}):
        _log.warning("OTEL_TRACES_EXPORTER: %r is ignored; only otlp is sent", other)
    return "otlp" in wanted


def _new_provider(service: str, environment: Mapping[str, str]) -> Any:
    """Return a provider of ours. It is not the global one: that is for the application to set."""
    _check_protocol([environment[name] for name in _PROTOCOLS if environment.get(name)])
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    of_environment = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    has_name = of_environment or bool(environment.get("OTEL_SERVICE_NAME"))
    resource = Resource.create({} if has_name else {"service.name": service})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _check_protocol(protocols: Sequence[str]) -> None:
    if protocols and protocols[0] != _HTTP:
        raise ValueError(f"the protocol is {protocols[0]}; only {_HTTP} is sent")


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
