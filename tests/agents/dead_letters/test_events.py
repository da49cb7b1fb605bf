"""The events of few dead letters are those of many, which Spark groups."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.dead_letters.events import stored_events
from arrester.domain.wire import dead_letter_columns

pytestmark = pytest.mark.spark

_COLUMNS = (
    "task STRING, position BIGINT, id STRING, actor STRING, reason STRING, fingerprint STRING,"
    " size INT, stage STRING"
)


def test_the_driver_groups_dead_letters_as_spark_does(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_columns, "MAX_RECORDS", 30)
    rows: list[tuple[Any, ...]] = [
        (task, position, None, "1-aa" if position % 3 else "1-bb", position)
        for task in ("a", "b")
        for position in range(70, 0, -1)
    ]
    rows += [("a", 5, "olga", "1-cc", 7), ("c", 1, "olga", None, 8), (None, 2, None, None, 9)]
    rows += [(None, None, None, "1-dd", number) for number in range(3)]
    named = [
        (task, position, f"{number:032x}", actor, actor and "known", fingerprint, size, "check")
        for number, (task, position, actor, fingerprint, size) in enumerate(rows)
    ]
    # The position of the last one is not valid.
    named.append(("a", 3, f"{999:032x}", None, None, "1-aa", 1, "source"))
    stored = spark.createDataFrame(named, _COLUMNS).coalesce(1)

    few, many = (
        stored_events(stored, place="/dlq", format="parquet", few=few) for few in (True, False)
    )
    assert sum(each.count for each in few) == len(named)

    def by_key(events: list[Any]) -> list[Any]:
        # The order of fingerprints is not defined, and causes are numbers of them.
        found = []
        for each in events:
            names = ["", *each.records.fingerprints]
            causes = dead_letter_columns._unpacked(each.records.causes, each.count)
            found.append(
                (
                    *(each.task or "", each.count, each.first_position, each.last_position),
                    *(each.actor, each.reason, [names[cause] for cause in causes]),
                    *(each.records.sizes, each.records.positions, each.records.ids),
                )
            )
        return sorted(found, key=str)

    assert by_key(few) == by_key(many)
    assert [len(each.ids) for each in few if each.ids] == [1, 3, 20, 1, 20, 1]
    assert [each.task for each in few] == sorted((each.task for each in few), key=lambda t: t or "")
