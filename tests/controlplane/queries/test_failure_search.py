"""Failures by any filter: the same as a scan of all, from a bounded part of the log."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

import psycopg
import pytest
from django.db import connection, transaction
from msgspec.structs import asdict, replace

from arrester.controlplane import embedded, models, queries, store
from arrester.controlplane.queries import FailureFilter
from arrester.controlplane.queries.failure_history import failures as failure_queries
from arrester.controlplane.store import batches, column_values, failures
from arrester.controlplane.views import row_mapping
from arrester.domain.events import (
    Event,
    Failure,
    FinalResponse,
    RecordFailed,
    Run,
    StoredEvent,
)
from arrester.domain.identity.names import task_id
from arrester.domain.state import counters
from arrester.domain.state.states import GroupState
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE, JFK, NOON, RUN

pytestmark = pytest.mark.usefixtures("fresh_database")
NAMES = ("alpha", "beta", "gamma")
STAGES = ("deserialize", "process:validate", "produce")
CLASSES = ("ValueError", "KeyError", "NumberFormat", "DateTime")
#: The most rows of the log that a page may read, including the first attempts.
MOST_READ = 1.5 * failures.CANDIDATES
LONG = 20_000
#: Days of receipt; events of each occurred at any time of 48 hours.
DAYS = 12
_READ = """
SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables
WHERE relname ~ %s
"""
_NOT_SEEN_BY_ALL = """
SELECT FROM pg_class WHERE relname ~ '^event_' AND relkind = 'r' AND relallvisible < relpages
"""


def failed_record(
    failure: Failure, *, run: Run = RUN, key: str | None = "JFK", hours: float = 0
) -> Event:
    data = RecordFailed(task=key, position=1, failure=failure, response=FinalResponse.CONTINUE)
    return histories.event(data, run=run, minute=round(hours * 60))


def causes(chance: random.Random, count: int) -> list[Failure]:
    """Some of Spark's conditions are raised as several classes, in one group."""
    found = []
    for number in range(count):
        cause = replace(
            FAILURE,
            stage=chance.choice(STAGES),
            exception_class=chance.choice(CLASSES),
            fingerprint=f"1-{number:016x}",
        )
        found.append(cause)
        if chance.random() < 0.2:
            cause = found[-1] = replace(cause, condition="CAST_INVALID_INPUT")
            found.append(replace(cause, exception_class=chance.choice(CLASSES)))
    return found


def random_logs(chance: random.Random) -> list[StoredEvent]:
    """Append to three logs over days, some batches long after or before they occurred by the
    agents' clocks, and return all failures."""
    some = causes(chance, 12)
    weights = [1 / (1 + number) ** 2 for number in range(len(some))]
    first = datetime.now(UTC) - timedelta(days=DAYS)
    store.ensure_partitions(first.date(), days=DAYS)
    for number in range(40):
        run = replace(RUN, pipeline=chance.choice(("delays",) * 8 + ("gains", "arrivals")))
        events = [
            failed_record(
                chance.choices(some, weights)[0],
                run=run,
                key=chance.choice(("JFK", "JFK", "EWR", None)),
                # Most come at about the time when they occur.
                hours=chance.choice((number, number + chance.random(), chance.randrange(48))),
            )
            for _ in range(chance.randrange(1, 12))
        ]
        held = histories.paused()[1:]
        name = chance.choice(NAMES[:1] * 4 + NAMES)
        received_at = first + timedelta(days=DAYS) * number / 40
        streams.append([*events, *held], received_at=received_at, application=name)
    every = [each for name in NAMES for each in store.read(name)]
    return [each for each in every if isinstance(each.event.data, RecordFailed)]


def random_filter(chance: random.Random, every: list[StoredEvent]) -> FailureFilter:
    """Return a filter by values of some event, or of none, in any combination."""
    one, other = chance.choice(every), chance.choice(every)

    def maybe(value: Any, nothing: Any = "nothing", share: float = 0.35) -> Any:
        return None if chance.random() > share else value if chance.random() < 0.9 else nothing

    failure: Any = one.event.data
    data: Any = chance.choice((one, other)).event.data
    moments = sorted(NOON + timedelta(hours=chance.randrange(-2, 50)) for _ in range(2))
    return FailureFilter(
        application=maybe(one.application, share=0.5),
        pipeline=maybe(other.event.run.pipeline if other.event.run else None),
        task=maybe(task_of(one), "0" * 32),
        stage=maybe(failure.failure.stage),
        exception_class=maybe(data.failure.exception_class),
        fingerprint=maybe(data.failure.fingerprint, share=0.2),
        since=maybe(moments[0], moments[1] + timedelta(days=9), share=0.2),
        until=maybe(moments[1], moments[0] - timedelta(days=9), share=0.2),
    )


def groups() -> list[GroupState]:
    return [each for name in NAMES for each in row_mapping.GROUPS.load("application = %s", [name])]


def task_of(stored: StoredEvent) -> str:
    assert stored.event.run is not None
    key = getattr(stored.event.data, "task", None)
    return task_id(stored.application, stored.event.run, key).digest


def naive(every: list[StoredEvent], wanted: FailureFilter) -> list[tuple[str, int]]:
    """Return the failures of a filter, searched in all events one by one."""

    def is_meant(stored: StoredEvent) -> bool:
        failure = getattr(stored.event.data, "failure")  # noqa: B009  # of any event
        run = stored.event.run
        has = {
            "application": stored.application,
            "pipeline": None if run is None else run.pipeline,
            "task": task_of(stored),
            "stage": failure.stage,
            "exception_class": failure.exception_class,
            "fingerprint": failure.fingerprint,
        }
        occurred = stored.event.occurred_at
        return (
            all(value in (None, has.get(name, value)) for name, value in asdict(wanted).items())
            and (wanted.since is None or wanted.since <= occurred)
            and (wanted.until is None or occurred < wanted.until)
        )

    found = filter(is_meant, every)
    if wanted.task is not None:
        return [place(each) for each in sorted(found, key=lambda each: -each.sequence)]
    return [place(each) for each in sorted(found, key=store.newest, reverse=True)]


def place(stored: StoredEvent) -> tuple[str, int]:
    return stored.application, stored.sequence


def all_pages(wanted: FailureFilter, *, limit: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    cursor = None
    while True:
        page = queries.failures(wanted, cursor=cursor, limit=limit)
        found += map(place, page.rows)
        assert (page.searched_until is None) or (page.next and len(page.rows) <= limit)
        if (cursor := page.next) is None:
            return found


@pytest.mark.parametrize(
    ("few", "candidates", "least", "classes"), [(2, 9, 16, 20), (50, 1000, 1, 0), (50, 9, 2, 1)]
)
def test_any_filter_finds_the_same_failures_as_a_scan_of_all(
    few: int, candidates: int, least: int, classes: int
) -> None:
    chance = random.Random(few)
    with patch.object(counters, "MAX_CLASSES", classes):
        every = random_logs(chance)
    assert (None in {each.other_classes for each in groups()}) == (classes == 0)
    assert any(each.other_classes for each in groups()) == (classes > 0)
    with (
        patch.object(failure_queries, "FEW", few),
        patch.object(failures, "CANDIDATES", candidates),
        patch.object(failures, "_LEAST", least),
        patch.object(failures, "_SHARES", 1),
        patch.object(failures, "_GROWTH", 2),
    ):
        some = 0
        for _ in range(40):
            wanted, limit = random_filter(chance, every), chance.choice((3, 7, 50))
            expected = naive(every, wanted)
            assert all_pages(wanted, limit=limit) == expected, wanted
            some += bool(expected)
        assert 10 < some < 35


def long_log(urls: embedded.Urls) -> None:
    """A log of one frequent cause, and of one more for each of 60 tasks, all with a condition and
    the first of them in two classes."""
    rare = [
        replace(
            FAILURE,
            condition="CAST_INVALID_INPUT",
            exception_class="NumberFormat",
            fingerprint=f"1-{number:016x}",
        )
        for number in range(60)
    ]
    last = replace(FAILURE, stage="produce", exception_class="KeyError", fingerprint="1-b")
    seldom = replace(RUN, pipeline="seldom")
    rare_events = [failed_record(each, key=f"T{number}") for number, each in enumerate(rare)]
    rare_events.append(failed_record(replace(rare[0], exception_class="DateTime"), key="T0"))
    events = [
        histories.failed(1),
        *rare_events,
        failed_record(last),
        failed_record(FAILURE, run=seldom),
    ]
    streams.append(events, received_at=datetime.now(UTC))
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        names = {"pipeline": "delays", "stage": FAILURE.stage, "exception_class": "ValueError"}
        database.execute(
            "INSERT INTO event (stream, day, sequence, occurred_at, place, type, task, cause,"
            " count, pipeline, stage, exception_class)"
            " SELECT %s, current_date - number % 3, 1000 + number,"
            " %s + number * interval '1 second', 0, %s, %s, %s, 1, %s, %s, %s"
            " FROM generate_series(1, %s) AS number".replace("% 3", "%% 3"),
            [
                store.read_stream(APPLICATION).id,
                NOON,
                column_values.hash_text("RecordFailed"),
                UUID(JFK.digest),
                column_values.hash_group(APPLICATION, FAILURE.fingerprint),
                *map(column_values.hash_text, names.values()),
                LONG,
            ],
        )
        database.execute("ANALYZE event")
    # As in the views.
    models.ErrorGroup.objects.filter(fingerprint=FAILURE.fingerprint).update(count=LONG)
    models.Task.objects.filter(digest=JFK.digest).update(failed=LONG)


def vacuum(urls: embedded.Urls) -> None:
    """Vacuum the days, as autovacuum does, so that an index is enough to read values."""
    with psycopg.connect(urls.migrate_database, autocommit=True) as database:
        for _ in range(100):
            database.execute("VACUUM event")
            if not database.execute(_NOT_SEEN_BY_ALL).fetchall():
                return
            # A transaction of another connection may not see it yet.
            time.sleep(0.1)
    raise AssertionError("rows are not seen by all")


def rows_read(table: str = "event_") -> int:
    with connection.cursor() as cursor:
        cursor.execute(_READ, [f"^{table}"])
        return int(cursor.fetchone()[0])


def as_of_large_tables() -> None:
    """Plan the statements of this transaction as if the tables were large."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")


def test_no_filter_reads_more_rows_than_the_limit(fresh_database: embedded.Urls) -> None:
    long_log(fresh_database)
    tomorrow = NOON + timedelta(days=1)
    # For each filter, whether its failures are found at once, or that it has none.
    filters = {
        FailureFilter(pipeline="never"): True,
        FailureFilter(pipeline="seldom"): False,
        FailureFilter(pipeline="seldom", exception_class="KeyError"): True,
        FailureFilter(exception_class="never"): True,
        FailureFilter(exception_class="KeyError"): True,
        FailureFilter(exception_class="DateTime"): True,
        FailureFilter(exception_class="KeyError", stage="produce"): True,
        FailureFilter(stage="never"): True,
        FailureFilter(pipeline="delays", stage="produce"): True,
        FailureFilter(task=JFK.digest, stage="produce"): False,
        FailureFilter(task=JFK.digest, stage="never"): True,
        FailureFilter(task=JFK.digest, pipeline="seldom"): True,
        FailureFilter(task=JFK.digest, fingerprint="1-b"): False,
        FailureFilter(task=JFK.digest, exception_class="never"): True,
        FailureFilter(task=JFK.digest, since=tomorrow): True,
        FailureFilter(
            fingerprint=FAILURE.fingerprint, pipeline="delays", exception_class="KeyError"
        ): True,
    }
    for wanted, at_once in filters.items():
        for application in (None, APPLICATION):
            with transaction.atomic():
                before = rows_read()
                page = queries.failures(replace(wanted, application=application))
                read = rows_read() - before
            assert read <= MOST_READ, (wanted, read)
            assert (page.next is None) == at_once, wanted
            assert (page.searched_until is None) == at_once
            if "never" in (wanted.stage, wanted.exception_class, wanted.pipeline):
                assert read == 0, wanted


def test_values_of_an_index_are_found_without_reading_rows(
    fresh_database: embedded.Urls,
) -> None:
    long_log(fresh_database)
    vacuum(fresh_database)
    frequent = FAILURE.fingerprint
    filters = {
        FailureFilter(fingerprint=frequent): 51,
        FailureFilter(fingerprint=f"1-{2:016x}", pipeline="delays"): 1,
    }
    for wanted, count in filters.items():
        with transaction.atomic(), patch.object(batches, "read_at", return_value=[]) as read_at:
            as_of_large_tables()
            before = rows_read()
            queries.failures(wanted, limit=50)
            assert rows_read() == before, wanted
        (places,) = read_at.call_args.args
        assert len(places) == count, wanted


def test_the_groups_of_a_class_are_found_without_reading_the_others(
    fresh_database: embedded.Urls,
) -> None:
    long_log(fresh_database)
    with psycopg.connect(fresh_database.migrate_database, autocommit=True) as database:
        database.execute(
            "INSERT INTO error_group (application, fingerprint, stage, exception_class, status,"
            " count, last_seen, state, sequence, other_classes)"
            " SELECT application, fingerprint || other, stage, exception_class, status, count,"
            " last_seen, state, sequence, CASE WHEN other %% 3 = 0 THEN ARRAY['Arithmetic'] END"
            " FROM error_group, generate_series(1, 50) AS other WHERE state LIKE %s",
            ['%"condition":"CAST%'],
        )
        database.execute("ANALYZE error_group")
    for name, causes in (("never", 0), ("DateTime", 1), ("KeyError", 1)):
        for application in (None, APPLICATION):
            wanted = FailureFilter(application=application, exception_class=name)
            with transaction.atomic():
                before = rows_read("error_group")
                assert len(queries.failures(wanted).rows) == causes
                assert rows_read("error_group") - before == causes
    # The classes of an older group are unknown: it may have been raised as any.
    models.ErrorGroup.objects.filter(fingerprint=f"1-{1:016x}").update(other_classes=["*"])
    assert failure_queries._groups([APPLICATION], FailureFilter(exception_class="never")) == [
        (APPLICATION, f"1-{1:016x}")
    ]


def test_a_page_of_many_logs_reads_a_few_rows_of_each() -> None:
    names = [f"airport-{number}" for number in range(8)]
    for name in names:
        events = [histories.failed(number) for number in range(60)]
        streams.append(events, received_at=datetime.now(UTC), application=name)
    with transaction.atomic():
        as_of_large_tables()
        before = rows_read()
        assert len(queries.failures(FailureFilter(), limit=50).rows) == 50
        # 51 of each are 408.
        assert 0 < rows_read() - before <= 8 * 26
    # And all of one, if a page has no others.
    late = [failed_record(FAILURE, hours=2 + minute / 60) for minute in range(60)]
    streams.append(late, received_at=datetime.now(UTC), application=names[3])
    page = queries.failures(FailureFilter(), limit=50)
    assert [each.application for each in page.rows] == names[3:4] * 50
    assert page.searched_until is None
