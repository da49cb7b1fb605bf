"""REST: series of failed records and of the flow have the numbers of charts and lists."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from msgspec.structs import replace

from arrester.dashboard.components.charts import failure_rates
from arrester.dashboard.components.time_range import span
from arrester.domain.events import Event, FinalResponse, RecordFailed, Run
from tests.controlplane import streams
from tests.dashboard.story import NA, TYPO, Story


def series(client: Client, *, status: int = 200, **parameters: Any) -> Any:
    answer = client.get(f"/api/v1/failures/series?{urlencode(parameters)}")
    assert answer.status_code == status, answer.content
    return answer.json()


@pytest.fixture
def failed(flights: Story) -> Story:
    flights.pauses("JFK", cause=TYPO)
    flights.pauses("LGA", cause=NA)
    flights.skips("EWR", 37)
    return flights


@pytest.mark.parametrize("step", [60, 3600])
def test_a_series_counts_by_each_name(failed: Story, viewer: Client, step: int) -> None:
    causes = dict.fromkeys((TYPO, NA), 0)
    for cause in causes:
        found = viewer.get(f"/api/v1/errors/flights/{cause.fingerprint}").json()
        causes[cause] = found["count"]
    total = sum(causes.values())
    assert total == 39
    names: dict[str, dict[str | None, int]] = {
        "application": {None: total},
        "pipeline": {"delays": total},
        "fingerprint": {cause.fingerprint: count for cause, count in causes.items()},
        "stage": {TYPO.stage: causes[TYPO], NA.stage: causes[NA]},
    }
    for by, expected in names.items():
        answer = series(viewer, by=by, step=step, application="flights")
        counted: Counter[str | None] = Counter()
        for each in answer["results"]:
            assert each["application"] == "flights"
            counted[each["name"]] += each["count"]
        assert (answer["by"], answer["step"], dict(counted)) == (by, step, expected)
    filtered: list[tuple[dict[str, Any], int]] = [
        ({"stage": TYPO.stage}, names["stage"][TYPO.stage]),
        ({"fingerprint": NA.fingerprint}, causes[NA]),
        ({"pipeline": "delays", "stage": NA.stage}, names["stage"][NA.stage]),
        ({"pipeline": "delays"}, total),
        ({"pipeline": "delays", "fingerprint": TYPO.fingerprint}, causes[TYPO]),
        ({"stage": TYPO.stage, "fingerprint": TYPO.fingerprint}, causes[TYPO]),
        ({"stage": TYPO.stage, "fingerprint": NA.fingerprint}, 0),
        ({"task": failed.task("EWR").digest}, 37),
    ]
    for filters, expected_count in filtered:
        of: dict[str, Any] = {} if "task" in filters else {"application": "flights"}
        for by in ("application",) if "task" in filters else names:
            results = series(viewer, step=step, by=by, **of, **filters)["results"]
            assert sum(each["count"] for each in results) == expected_count, (filters, by)


@pytest.mark.parametrize("step", [60, 3600])
@pytest.mark.parametrize("by", ["pipeline", "stage", "fingerprint"])
def test_the_smallest_names_of_a_series_are_combined(viewer: Client, step: int, by: str) -> None:
    """Name `n` of 12 has n + 1 failures, in as many minutes of two hours."""
    now = datetime.now(UTC)
    names = [f"1-{number:016x}" for number in range(12)]
    events = [
        Event(
            occurred_at=now - timedelta(minutes=10 * minute),
            data=RecordFailed(
                task="EWR",
                position=minute,
                failure=replace(NA, stage=name, fingerprint=name),
                response=FinalResponse.CONTINUE,
            ),
            run=Run(pipeline=name, checkpoint="cp-1", epoch=1),
        )
        for number, name in enumerate(names)
        for minute in range(number + 1)
    ]
    streams.append(events, received_at=now)
    sizes = {name: number + 1 for number, name in enumerate(names)}
    since = (now - timedelta(hours=3)).isoformat()

    def counted(**parameters: Any) -> dict[str | None, int]:
        found: Counter[str | None] = Counter()
        wanted: dict[str, Any] = {
            "application": "flights",
            "since": since,
            "step": step,
        } | parameters
        for each in series(viewer, by=by, **wanted)["results"]:
            found[each["name"]] += each["count"]
        return dict(found)

    of_largest = {name: sizes[name] for name in names[3:]}
    assert counted() == of_largest | {None: 1 + 2 + 3}
    assert counted(names=12) == sizes
    assert counted(names=2) == {names[11]: 12, None: sum(range(12))}
    assert counted(names=1) == {None: sum(range(13))}
    # Of a part of the time, in which others are the largest than since creation, or as large.
    for first, last in ((90, 0), (180, 30), (25, 0)):
        part = {
            "since": (now - timedelta(minutes=first)).isoformat(),
            "until": (now - timedelta(minutes=last)).isoformat(),
        }
        every = counted(names=50, **part)
        in_order = sorted(every, key=lambda name: (-every[name], name))
        for most in range(1, 14):
            shown = in_order if len(every) <= most else in_order[: most - 1]
            expected = {name: every[name] for name in shown}
            if rest := sum(every.values()) - sum(expected.values()):
                expected[None] = rest
            assert counted(names=most, **part) == expected


def test_a_series_has_the_numbers_of_the_chart(failed: Story, viewer: Client) -> None:
    now = datetime.now(UTC)
    shown = span({"range": "24h"}, now=now, default="24h")
    [drawn] = failure_rates.rate(shown).chart.series
    answer = series(
        viewer,
        since=shown.start.isoformat(),
        until=shown.end.isoformat(),
        step=int(shown.step.total_seconds()),
    )
    values = [0] * shown.columns
    for each in answer["results"]:
        column = shown.column(datetime.fromisoformat(each["began_at"]))
        assert column is not None
        values[column] += each["count"]
    assert values == list(drawn.values) and sum(values) == 39


def test_wrong_parameters_of_a_series_are_named(failed: Story, viewer: Client) -> None:
    task = failed.task("EWR").digest
    assert series(viewer, status=400, task=task, stage=NA.stage)["param"] == "task"
    assert series(viewer, status=400, task=task, by="stage")["param"] == "task"
    assert series(viewer, status=400, by="host")["param"] == "by"
    for detailed in ({"by": "stage"}, {"fingerprint": NA.fingerprint}):
        assert series(viewer, status=400, **detailed)["param"] == "application"
    assert series(viewer, status=400, step=61)["param"] == "step"
    for names in (0, 51, "all"):
        assert series(viewer, status=400, names=names)["param"] == "names"
    assert series(viewer, status=404, application="fligths")["code"] == "not_found"
    early = datetime.now(UTC) - timedelta(days=1)
    assert series(viewer, until=early.isoformat())["results"] == []


def test_the_flow_of_all_pipelines_is_a_series(failed: Story, viewer: Client) -> None:
    assert viewer.get("/api/v1/pipelines/series").json()["results"] == []
    assert viewer.get("/api/v1/pipelines/series?application=x").status_code == 404


def test_a_series_of_an_unknown_error_group_is_404(failed: Story, viewer: Client) -> None:
    answer = series(viewer, status=404, application="flights", fingerprint="0" * 16)
    assert answer["code"] == "not_found"


def test_a_series_of_an_unknown_pipeline_is_404(flights: Story, viewer: Client) -> None:
    answer = series(viewer, status=404, application="flights", pipeline="dealys")
    assert answer["code"] == "not_found"
    # One that has not failed is known.
    assert series(viewer, application="flights", pipeline="delays")["results"] == []
