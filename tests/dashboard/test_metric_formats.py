"""`/metrics` in each format, as `Accept` asks for it."""

from __future__ import annotations

import pytest
from django.test import Client
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.dashboard.accounts import make_user, token
from tests.dashboard.story import Story

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
PLAIN_1 = "text/plain; version=1.0.0; charset=utf-8; escaping={}"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping={}"
#: What Prometheus sends: 2.37, 2.54, 3.5 with and without UTF-8 names.
PROMETHEUS = {
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1": OPENMETRICS.format("underscores"),
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1"
    ";q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2": OPENMETRICS.format("underscores"),
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,"
    "*/*;q=0.2": OPENMETRICS.format("allow-utf-8"),
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
    ";q=0.6,text/plain;version=1.0.0;escaping=underscores;q=0.4": PLAIN_1.format("underscores"),
}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, PLAIN),
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/*", PLAIN),
        ("text/plain", PLAIN),
        ("application/*", OPENMETRICS.format("underscores")),
        ("application/openmetrics-text", OPENMETRICS.format("underscores")),
        ("text/plain; version=1.0.0", PLAIN_1.format("underscores")),
        ('text/plain;version="1.0.0";escaping=values', PLAIN_1.format("values")),
        # A scheme that would change our names is not used: the answer names the one that is.
        ("text/plain;version=1.0.0;escaping=dots", PLAIN_1.format("underscores")),
        *PROMETHEUS.items(),
        # A version that is not given is not claimed.
        ("application/openmetrics-text;version=2.0.0", PLAIN),
        ("application/openmetrics-text;version=x, text/plain;version=1.0.0;q=0.1",
         PLAIN_1.format("underscores")),
        # By q, not by the order.
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", PLAIN),
        ("application/openmetrics-text;q=0,*/*", PLAIN),
        ("text/plain;q=0,*/*;q=0.1", OPENMETRICS.format("underscores")),
        # Nothing of ours: clients of Prometheus expect the plain text.
        ("application/json", PLAIN),
        ("text/html,application/xhtml+xml", PLAIN),
        (", ;;q=nonsense,/,text", PLAIN),
    ],
)  # fmt: skip
def test_the_answer_has_the_format_that_the_client_prefers(
    flights: Story, viewer: Client, accept: str | None, content_type: str
) -> None:
    flights.pauses("JFK", held=2)
    response = viewer.get("/metrics", headers={} if accept is None else {"Accept": accept})
    assert (response.status_code, response.headers["Content-Type"]) == (200, content_type)
    assert "Accept" in response.headers["Vary"]
    text = response.content.decode()
    is_openmetrics = content_type.startswith("application/openmetrics-text")
    parse = openmetrics_families if is_openmetrics else text_string_to_metric_families
    samples = {sample.name for family in parse(text) for sample in family.samples}
    assert {"arrester_failed_records_total", "arrester_tasks"} <= samples
    assert text.endswith("# EOF\n") == is_openmetrics


def test_errors_are_json_for_any_accept(client: Client, flights: Story) -> None:
    refused = client.get("/metrics?format=prometheus", headers={"Accept": "text/plain"})
    assert refused.status_code == 401
    assert "json" in refused.headers["Content-Type"]
    make_user("ana", "viewer")
    header = {"Authorization": f"Bearer {token('ana')}", "Accept": "text/plain"}
    assert client.get("/metrics?format=prometheus", headers=header).status_code == 200
