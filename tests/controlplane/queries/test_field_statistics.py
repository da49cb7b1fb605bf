"""Which values the records of an error group have, beside those of other groups."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from arrester.controlplane import queries
from arrester.controlplane.queries import FieldStatistics
from arrester.controlplane.queries.failure_history import field_statistics
from arrester.domain.errors import NotFound
from arrester.domain.events import Body, Event, FinalResponse, RecordFailed
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE

pytestmark = pytest.mark.django_db
OTHER = "1-00000000000000bb"


def failed(
    position: int, record: dict[str, Any] | None, *, fingerprint: str = FAILURE.fingerprint
) -> Event:
    data = RecordFailed(
        task="JFK",
        position=position,
        failure=replace(FAILURE, fingerprint=fingerprint),
        response=FinalResponse.CONTINUE,
    )
    return histories.event(data, body=Body(record=record))


def append(*events: Event) -> None:
    streams.append(events, received_at=datetime(2026, 11, 20, 12, tzinfo=UTC))


def fields() -> dict[str, FieldStatistics]:
    found = queries.group_fields(APPLICATION, FAILURE.fingerprint).fields
    return {each.name: each for each in found}


def test_the_value_that_causes_a_failure_is_first() -> None:
    append(
        *(
            failed(n, {"id": f"a{n}", "dep_delay": "NA" if n else "x", "dest": "JFK", "gate": n})
            for n in range(50)
        ),
        *(
            failed(n, {"id": f"b{n}", "dep_delay": str(n % 5), "dest": "JFK"}, fingerprint=OTHER)
            for n in range(100, 120)
        ),
    )
    found = queries.group_fields(APPLICATION, FAILURE.fingerprint)
    assert (found.examples, found.other_examples) == (50, 20)
    first = found.fields[0]
    assert (first.name, first.difference) == ("gate", 1.0)
    delay = fields()["dep_delay"]
    assert delay.difference == 0.98
    assert [(each.value, each.share, each.other_share) for each in delay.values] == [
        ("NA", 0.98, 0.0),
        ("x", 0.02, 0.0),
    ]
    assert (delay.least, delay.other_least, delay.other_greatest) == (None, 0.0, 4.0)
    assert fields()["dest"].difference == 0.0
    assert (fields()["id"].distinct, fields()["id"].shortest, fields()["id"].longest) == (50, 2, 3)
    assert (fields()["gate"].least, fields()["gate"].greatest) == (0.0, 49.0)


def test_missing_values_and_nested_ones() -> None:
    append(
        failed(1, {"a": None, "value": '{"order": {"n": 1}}'}),
        failed(2, {"a": "x", "value": '{"order": {"n": 3}}'}),
        failed(3, {"value": "", "infinite": "inf"}),
        failed(4, None),
    )
    found = queries.group_fields(APPLICATION, FAILURE.fingerprint)
    assert (found.examples, found.other_examples) == (3, 0)
    a, order = fields()["a"], fields()["value.order.n"]
    assert (round(a.missing_share, 2), a.other_missing_share, a.difference) == (0.67, None, 0.0)
    assert (order.least, order.greatest, order.distinct) == (1.0, 3.0, 2)
    assert (fields()["value"].shortest, fields()["infinite"].least) == (0, None)


def test_a_group_without_records_has_no_fields_and_an_unknown_one_is_an_error() -> None:
    append(failed(1, None))
    assert queries.group_fields(APPLICATION, FAILURE.fingerprint).fields == ()
    with pytest.raises(NotFound):
        queries.group_fields(APPLICATION, "1-ffffffffffffffff")


def test_a_bounded_number_of_records_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_statistics, "EXAMPLES", 4)
    append(*(failed(n, {"n": n}) for n in range(10)))
    for other in range(3):
        some = (failed(n, {"n": n}, fingerprint=f"1-000000000000000{other}") for n in range(5))
        append(*some)
    found = queries.group_fields(APPLICATION, FAILURE.fingerprint)
    # Of each other group the same number.
    assert (found.examples, found.other_examples) == (4, 3)
    assert fields()["n"].least == 6.0
