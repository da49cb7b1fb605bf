"""What all processes of the server have counted: requests, folds, commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate

from django.urls import URLPattern, URLResolver, get_resolver
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from arrester.controlplane.redis import metric_sums
from arrester.controlplane.redis.metric_sums import SUM, Field, Histogram
from arrester.controlplane.web.request_metrics import NO_ROUTE, STATIC

STATUSES = ("1xx", "2xx", "3xx", "4xx", "5xx")


def samples(sums: Mapping[Field, int]) -> Iterator[Metric]:
    """Yield the metrics of the server."""
    requests = CounterMetricFamily(
        "arrester_http_requests",
        "Requests of all web processes.",
        labels=("route", "status"),
    )
    for field, number in sums.items():
        match field:
            # Another version of the server may have other routes.
            case (metric_sums.HTTP_REQUESTS, str(route), str(status)) if route in _routes():
                requests.add_metric([route, status], number)
    yield requests
    yield _histogram(
        metric_sums.HTTP,
        "Time until the answer to a request begins.",
        "route",
        {route: _of(sums, metric_sums.HTTP, route) for route in _routes()},
    )
    yield _histogram(
        metric_sums.FOLD,
        "Duration of the transactions that fold events.",
        None,
        {"": _of(sums, metric_sums.FOLD)},
    )
    errors = CounterMetricFamily("arrester_fold_errors", "Folds that ended with an error.")
    errors.add_metric([], sums.get((metric_sums.FOLD_ERRORS,), 0))
    yield errors


def command_durations(sums: Mapping[Field, int], applications: frozenset[str]) -> Metric:
    """Return how long commands took until the server had the answer of all agents."""
    return _histogram(
        metric_sums.COMMANDS,
        "Time between the issue of a command and the answer of the last agent that applied it.",
        "application",
        {name: _of(sums, metric_sums.COMMANDS, name) for name in sorted(applications)},
    )


def _of(sums: Mapping[Field, int], histogram: Histogram, *labels: str) -> list[int]:
    """Return the counts of the buckets and the sum of one histogram, zeros if it has none."""
    keys = (*range(len(histogram.limits) + 1), SUM)
    return [sums.get((histogram.name, *labels, key), 0) for key in keys]


def _histogram(
    histogram: Histogram, meaning: str, label: str | None, found: Mapping[str, list[int]]
) -> Metric:
    family = HistogramMetricFamily(
        f"arrester_{histogram.name}", meaning, labels=[label] if label else [], unit="seconds"
    )
    limits = [*map(str, histogram.limits), "+Inf"]
    for name, (*counts, microseconds) in found.items():
        # A route without a request has no sample; other histograms begin with zeros.
        if any(counts) or label is None:
            buckets = [*zip(limits, map(float, accumulate(counts)), strict=True)]
            family.add_metric([name] if label else [], buckets, microseconds / 1_000_000)
    return family


@cache
def _routes() -> frozenset[str]:
    return frozenset((STATIC, NO_ROUTE, *_templates(get_resolver(), "/")))


def _templates(resolver: URLResolver, prefix: str) -> Iterator[str]:
    for each in resolver.url_patterns:
        template = f"{prefix}{each.pattern}"
        if isinstance(each, URLPattern):
            yield template
        else:
            yield from _templates(each, template)
