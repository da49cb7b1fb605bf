"""Charts of what flowed through a pipeline: records, failures, durations and the backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial

from django.urls import reverse
from msgspec.structs import replace

from arrester.controlplane import queries
from arrester.dashboard.components.charts.chart import (
    Chart,
    Compared,
    Marker,
    MarkerKind,
    Series,
    Shape,
    Unit,
    Values,
)
from arrester.dashboard.components.time_range import Span
from arrester.domain.durations import Phase
from arrester.domain.state.states import CommandState

_DAY = timedelta(days=1)
_UNITS = {"files": Unit.FILES, "bytes": Unit.BYTES}
_PHASES = (
    (Phase.SOURCE, "1"),
    (Phase.EVALUATE, "2"),
    (Phase.DECIDE, "3"),
    (Phase.STORE, "4"),
    (Phase.WRITE, "5"),
)
#: The flow of a pipeline, oldest first.
Intervals = Sequence[queries.FlowInterval]


def read(application: str, pipeline: str, span: Span) -> tuple[Intervals, Intervals]:
    """Return the flow of a pipeline in the columns of a span, and that of a day earlier if the
    span is a day at most."""
    series = partial(
        queries.flow_series, application=application, pipeline=pipeline, step=span.step
    )
    now = series(since=span.start, until=span.end)
    if span.end - span.start > _DAY:
        return now, ()
    earlier = series(since=span.start - _DAY, until=span.end - _DAY)
    # In the columns of the day after.
    return now, [replace(each, moment=each.moment + _DAY) for each in earlier]


def charts(
    flow: Intervals, earlier: Intervals, span: Span, markers: Sequence[Marker]
) -> list[Chart]:
    """Return the charts of a pipeline; those without any value are left out."""
    found = [
        _records(flow, earlier, span, markers),
        _failures(flow, span, markers),
        _durations(flow, span, markers),
        _phases(flow, span, markers),
        _backlog(flow, span, markers),
    ]
    return [each for each in found if each.is_known]


def markers(runs: Iterable[queries.PastRun], commands: Iterable[CommandState]) -> list[Marker]:
    """Return the starts and ends of runs, new releases, and commands."""
    found: list[Marker] = []
    release: str | None = None
    for run in sorted(runs, key=lambda each: each.sequence):
        if run.started_at is not None:
            is_new = run.release is not None and run.release != release
            kind = MarkerKind.RELEASE if is_new else MarkerKind.START
            text = f"Release {run.release}" if is_new else f"Run {run.epoch} started"
            found.append(Marker(moment=run.started_at, kind=kind, text=text, url="#runs"))
            release = run.release or release
        if run.ended_at is not None:
            text = f"Run {run.epoch} ended: {run.reason}"
            found.append(Marker(moment=run.ended_at, kind=MarkerKind.END, text=text, url="#runs"))
    for command in commands:
        text = f"{command.kind} by {command.actor}"
        url = reverse("command", args=[command.id])
        at = command.issued_at
        found.append(Marker(moment=at, kind=MarkerKind.COMMAND, text=text, url=url))
    return found


def _records(flow: Intervals, earlier: Intervals, span: Span, markers: Sequence[Marker]) -> Chart:
    read_in = _values(flow, span, lambda each: each.sums.records_in)
    out = _values(flow, span, lambda each: each.sums.records_out)
    compared = None
    if earlier:
        before = _values(earlier, span, lambda each: each.sums.records_in)
        compared = Compared(name="read 24 h earlier", values=before)
    return Chart(
        id="records",
        title="Records",
        span=span,
        shape=Shape.LINES,
        series=(
            Series(name="read", values=read_in, colour="1", number=_sum(read_in)),
            Series(name="written", values=out, colour="running", number=_sum(out)),
        ),
        compared=compared,
        markers=tuple(markers),
    )


def _failures(flow: Intervals, span: Span, markers: Sequence[Marker]) -> Chart:
    names = (("failed", "failed"), ("skipped", "4"), ("held", "held"), ("drained", "2"))
    rows = [(name, colour, _counts(flow, span, name)) for name, colour in names]
    return Chart(
        id="failures",
        title="Failed, skipped and held records",
        span=span,
        shape=Shape.LINES,
        series=tuple(
            Series(name=name, values=values, colour=colour, number=_sum(values))
            for name, colour, values in rows
        ),
        markers=tuple(markers),
    )


def _durations(flow: Intervals, span: Span, markers: Sequence[Marker]) -> Chart:
    rows = (("median", "p50_ms", "1"), ("95 %", "p95_ms", "2"), ("longest", "longest_ms", "3"))
    return Chart(
        id="durations",
        title="Duration of micro-batches",
        span=span,
        unit=Unit.SECONDS,
        shape=Shape.LINES,
        series=tuple(
            Series(name=name, values=_seconds(flow, span, Phase.TOTAL, field), colour=colour)
            for name, field, colour in rows
        ),
        markers=tuple(markers),
    )


def _phases(flow: Intervals, span: Span, markers: Sequence[Marker]) -> Chart:
    rows = [(phase, colour, _seconds(flow, span, phase, "p95_ms")) for phase, colour in _PHASES]
    return Chart(
        id="phases",
        title="Phases of micro-batches, 95 %",
        span=span,
        unit=Unit.SECONDS,
        shape=Shape.LINES,
        series=tuple(
            Series(name=phase.value, values=values, colour=colour)
            for phase, colour, values in rows
            if any(each is not None for each in values)
        ),
        markers=tuple(markers),
    )


def _backlog(flow: Intervals, span: Span, markers: Sequence[Marker]) -> Chart:
    unit = next((each.backlog_unit for each in flow if each.backlog_unit), None)
    return Chart(
        id="backlog",
        title="Backlog of the source",
        span=span,
        unit=_UNITS.get(unit or "", Unit.RECORDS),
        shape=Shape.LINES,
        series=(
            Series(
                name="not read yet",
                values=_values(flow, span, lambda each: each.backlog),
                colour="1",
            ),
        ),
        markers=tuple(markers),
    )


def _values(
    flow: Intervals, span: Span, value: Callable[[queries.FlowInterval], float | None]
) -> list[float | None]:
    """Return a value of each column; None where nothing was measured."""
    values: list[float | None] = [None] * span.columns
    for each in flow:
        column = span.column(each.moment)
        if column is not None:
            values[column] = value(each)
    return values


def _counts(flow: Intervals, span: Span, name: str) -> list[float | None]:
    return _values(flow, span, lambda each: getattr(each.sums, name))


def _seconds(flow: Intervals, span: Span, phase: Phase, field: str) -> list[float | None]:
    def value(each: queries.FlowInterval) -> float | None:
        found = each.durations.get(phase.value)
        return None if found is None else getattr(found, field) / 1000

    return _values(flow, span, value)


def _sum(values: Values) -> float:
    return sum(each for each in values if each is not None)
