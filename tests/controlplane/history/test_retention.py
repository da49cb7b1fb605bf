"""Retention: a verified base covers the dropped days, and nothing else changes."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection, connections
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, embedded, models, queries, store, tasks
from arrester.controlplane.celery_workers import HOUSEKEEPING
from arrester.controlplane.history import rebuild, retention, state_at_position
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.management.commands import wake
from arrester.domain.errors import BeforeHistory, BrokenState, NotVerified
from arrester.domain.identity import uuids
from arrester.domain.state.states import ApplicationState, TaskState
from tests import histories
from tests import services as running_services
from tests.controlplane import streams
from tests.dashboard.accounts import logged_in, make_user
from tests.histories import APPLICATION, JFK
from tests.patience import PATIENCE_SECONDS
from tests.terminal import terminal

pytestmark = pytest.mark.usefixtures("fresh_database")
NOW = datetime.now(UTC)
#: The tables of counts.
COUNTS = (
    *(models.MinuteCount, models.HourCount),
    *(models.MinuteTotal, models.HourTotal, models.HourStage),
)


@pytest.fixture(autouse=True, scope="module")
def today() -> None:
    """Return today; the tests may have been collected on another day."""
    global NOW
    NOW = datetime.now(UTC)


#: The tables of counts.
COUNTS = (
    *(models.MinuteCount, models.HourCount),
    *(models.MinuteTotal, models.HourTotal, models.HourStage),
)


@pytest.fixture(scope="module")
def filled(services: embedded.Urls) -> Iterator[set[str]]:
    """Return the names of databases with events, from which tests clone theirs."""
    names: set[str] = set()
    yield names
    for name in names:
        running_services.drop(services, name)


@pytest.fixture
def forty_days(fresh_database: embedded.Urls, filled: set[str]) -> rebuild.Derived:
    """Have events on each of forty days; return the rows of the views."""
    name = "arrester_forty_days"
    if name in filled:
        connections.close_all()
        running_services.clone(fresh_database, source=name)
    else:
        _append_forty_days()
        connections.close_all()
        running_services.clone(fresh_database, name, source=running_services.DATABASE)
        filled.add(name)
    return rebuild.live_rows(APPLICATION)


def _append_forty_days() -> None:
    first = (NOW - timedelta(days=40)).date()
    store.ensure_partitions(first, days=40)
    for number in range(40):
        events = [histories.failed(number), histories.failed(number, key="EWR")]
        if number == 0:
            events = [*histories.started(), *histories.paused(1, key="LGA"), *events]
        streams.append(events, received_at=NOW - timedelta(days=40 - number))
    streams.assert_exact()


def retain(days: int = 30) -> retention.Retained:
    return retention.retain(days=days, replay_days=30)


def partitions(table: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass",
            [table],
        )
        return {name.removeprefix(f"{table}_") for (name,) in cursor.fetchall()}


def test_retention_changes_no_view_no_rebuild_and_no_past_state(
    forty_days: rebuild.Derived,
) -> None:
    before = retain()
    assert before.bases == {APPLICATION: 25}
    # Ten days of events and of bodies; ids of batches are known for two days longer.
    assert before.dropped.partitions == 28
    assert before.dropped.bytes > 0
    assert streams.log()[0].sequence == 26

    assert rebuild.live_rows(APPLICATION) == forty_days
    assert rebuild.differences(APPLICATION) == []
    for model in rebuild.VIEWS:
        model._default_manager.all().delete()
    rebuild.rebuild(APPLICATION)
    assert rebuild.live_rows(APPLICATION) == forty_days

    now = queries.AsOf(moment=datetime.now(UTC))
    assert queries.as_of_state.task(JFK.digest, now).state == queries.task(JFK.digest).state
    assert queries.as_of_state.task(JFK.digest, queries.AsOf(position=25)).state.failed == 10
    with pytest.raises(BeforeHistory) as raised:
        queries.as_of_state.task(JFK.digest, queries.AsOf(position=24))
    assert raised.value.position == 25
    with pytest.raises(BeforeHistory):
        queries.as_of_state.applications(queries.AsOf(moment=NOW - timedelta(days=35)))
    with pytest.raises(BeforeHistory):
        queries.event(APPLICATION, 3)
    # The record behind a pause of long ago is gone; the pause is not.
    (paused,) = queries.tasks(queries.TaskFilter(status="PAUSED")).rows
    assert queries.task(paused.id.digest).failure is None
    assert retain() == retention.Retained(bases={}, dropped=store.Dropped(partitions=0, bytes=0))


def test_the_rest_of_the_log_can_be_read_from_position_0(
    forty_days: rebuild.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    retain()
    left = streams.log()
    monkeypatch.setattr(store.log, "EVENTS_PER_READ", 4)
    assert streams.log() == left
    assert [each.sequence for each in left] == list(range(26, left[-1].sequence + 1))
    assert list(store.read(APPLICATION, until=25)) == []


def test_a_long_command_shows_a_bar_on_a_terminal_and_lines_elsewhere(
    forty_days: rebuild.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "PROGRESS_EVERY", 20)
    with terminal(monkeypatch) as output:
        call_command("retain", "--days", "35")
        retained = output()
        call_command("rebuild")
        rebuilt = output()
    assert "the log begins at @15" in retained and "flights @ 85: rebuilt" in rebuilt
    for shown, bar in ((retained, "0/15"), (rebuilt, "85/85")):
        assert "\x1b[" in shown and "━" in shown and bar in shown
        # The bar is gone at the end.
        assert bar not in shown.rpartition("\x1b[2K")[2]

    lines = StringIO()
    call_command("rebuild", stdout=lines)
    call_command("retain", "--days", "30", stdout=lines)
    assert [each for each in lines.getvalue() if not each.isprintable() and each != "\n"] == []
    assert "flights: 85 of 85 events\nflights @ 85: rebuilt\n" in lines.getvalue()
    assert "flights: the log begins at @25\n" in lines.getvalue()


def test_retention_drops_nothing_during_a_rebuild_and_does_not_wait(
    forty_days: rebuild.Derived,
) -> None:
    """A worker that waits for a rebuild would fold no application."""
    streams.append([histories.failed(1)], application="other", received_at=NOW - timedelta(days=35))
    streams.append([histories.failed(2)], application="other", received_at=NOW)
    holding, go_on = threading.Event(), threading.Event()

    def rebuild() -> None:
        with store.maintenance_lock(APPLICATION):
            holding.set()
            go_on.wait(PATIENCE_SECONDS)
        connection.close()

    rebuilder = threading.Thread(target=rebuild)
    rebuilder.start()
    try:
        assert holding.wait(PATIENCE_SECONDS)
        with connection.cursor() as cursor:
            # A statement that waits nevertheless ends here.
            cursor.execute("SET lock_timeout = '5s'")
        tasks.housekeeping()
        done = retain()
        assert (done.busy, done.dropped.partitions) == ((APPLICATION,), 0)
        assert store.base("other").position == 1
        with pytest.raises(CommandError, match="a rebuild or a slow fold is running"):
            call_command("retain", "--days", "30", stdout=StringIO())
    finally:
        go_on.set()
        rebuilder.join()
    assert retain().bases == {APPLICATION: 25}


@pytest.mark.parametrize(
    ("statement", "busy"),
    [
        ("SELECT FROM stream FOR UPDATE", (APPLICATION,)),
        # The tables of the days, which are dropped.
        ("SELECT FROM batch_seen", ()),
    ],
)
def test_retention_drops_nothing_beside_a_slow_fold_and_does_not_wait(
    forty_days: rebuild.Derived,
    fresh_database: embedded.Urls,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    busy: tuple[str, ...],
) -> None:
    """Folds of other applications would wait behind it."""
    monkeypatch.setattr(retention, "LOCK_SECONDS", 0.05)
    with psycopg.connect(fresh_database.database) as slow:
        slow.execute(statement)
        done = retain()
        assert (done.dropped.partitions, done.busy) == (0, busy)
    assert retain().dropped.partitions > 0


def test_wake_requests_housekeeping_an_hour_after_the_last(redis: Redis) -> None:
    waker = wake.Waker()
    waker.next_request |= dict.fromkeys(wake.PERIODIC, math.inf)
    waker.poll()
    assert redis.llen(HOUSEKEEPING) == 0  # A new system has just been migrated.
    models.Sighting.objects.filter(name="housekeeper").update(at=NOW - timedelta(hours=1))
    for _ in range(2):
        waker.next_sweep = 0.0
        waker.poll()
    assert redis.llen(HOUSEKEEPING) == 1
    # The request was lost: it is repeated.
    waker.next_sweep = waker.next_request[tasks.housekeeping] = 0.0
    waker.poll()
    assert redis.llen(HOUSEKEEPING) == 2


def test_wake_requests_housekeeping_after_the_clock_went_back(redis: Redis) -> None:
    waker = wake.Waker()
    waker.next_request |= dict.fromkeys(wake.PERIODIC, math.inf)
    ahead = datetime.now(UTC) + timedelta(hours=3)
    models.Sighting.objects.create(name="housekeeper", at=ahead)
    waker.poll()
    assert redis.llen(HOUSEKEEPING) == 1


def test_one_housekeeping_runs_at_a_time(forty_days: rebuild.Derived) -> None:
    with ThreadPoolExecutor(1) as elsewhere:
        holding = store.try_housekeeping_lock()
        assert elsewhere.submit(holding.__enter__).result(60)
        tasks.housekeeping()
        assert store.base(APPLICATION).position == 0
        elsewhere.submit(holding.__exit__, None, None, None).result(60)
        elsewhere.submit(connections.close_all).result(60)
    Session.objects.create(session_key="ended", session_data="", expire_date=NOW)
    Session.objects.create(session_key="mine", session_data="", expire_date=NOW + timedelta(days=1))
    tasks.housekeeping()
    assert store.base(APPLICATION).position == 25
    assert Session.objects.get().session_key == "mine"


def test_each_run_moves_the_base_by_a_day(forty_days: rebuild.Derived) -> None:
    for days in (38, 35, 20, 1):
        retain(days)
        assert rebuild.live_rows(APPLICATION) == forty_days
        assert rebuild.differences(APPLICATION) == []
    assert models.Base.objects.count() == 1
    # One row for each state: that of a newer base has replaced the older one's.
    kept = models.BaseState.objects.filter(kind="task").values_list("key", flat=True)
    assert len(kept) == len(set(kept)) == models.Task.objects.count()


def test_dropping_days_frees_disk_space(forty_days: rebuild.Derived) -> None:
    def sizes() -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(name))"
                " FROM unnest(%s::regclass[]) AS name",
                [tables],
            )
            return [int(size) for (size,) in cursor.fetchall()]

    tables = ["event", "batch", "batch_seen"]
    before, days = sizes(), [partitions(table) for table in tables]
    done = retention.retain(days=1, replay_days=1)
    after = sizes()
    gone = [len(some - partitions(table)) for table, some in zip(tables, days, strict=True)]
    # Ids are known for two days longer.
    assert gone == [39, 39, 37]
    assert all(now < then for then, now in zip(before, after, strict=True))
    assert sum(before) - sum(after) == done.dropped.bytes


def test_dropping_days_of_the_default_partition_frees_disk_space(redis: Redis) -> None:
    old = NOW - timedelta(days=40)
    streams.append([histories.failed(number) for number in range(50)], received_at=old)
    streams.send(redis, [histories.failed(1)], batch=uuids.uuid7(old))
    fold_stream.fold_stream(APPLICATION)
    defaults = ["event_default", "batch_default", "batch_seen_default"]

    def pages() -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_relation_size(name) FROM unnest(%s::regclass[]) AS name", [defaults]
            )
            return [int(size) for (size,) in cursor.fetchall()]

    assert all(pages())
    assert retain().dropped.bytes > 0
    assert pages() == [0, 0, 0]


def test_days_without_a_base_are_not_dropped(
    forty_days: rebuild.Derived, fresh_database: embedded.Urls
) -> None:
    urls = [fresh_database.database, fresh_database.migrate_database]
    before = NOW.date() - timedelta(days=1)
    for url in urls:
        with psycopg.connect(url, autocommit=True) as role:
            with pytest.raises(psycopg.errors.RaiseException, match="no base covers"):
                role.execute("SELECT arrester_drop_days(%s, %s)", [before, before])
            for day in ("2050-01-01", NOW.date()):
                with pytest.raises(psycopg.errors.RaiseException, match="are not dropped"):
                    role.execute("SELECT arrester_drop_days(%s, '2020-01-01')", [day])
    assert len(streams.log()) == 85


@pytest.mark.parametrize("position", [25, 10**12])
def test_a_forged_base_covers_nothing(
    forty_days: rebuild.Derived, fresh_database: embedded.Urls, position: int
) -> None:
    day = (NOW - timedelta(days=30)).date()
    (last,) = store.read(APPLICATION, after=24, until=25)
    with psycopg.connect(fresh_database.database, autocommit=True) as role:
        role.execute(
            "INSERT INTO base VALUES (%s, %s, %s, now())", [APPLICATION, position, last.received_at]
        )
        with pytest.raises(psycopg.errors.RaiseException, match="no base covers"):
            role.execute("SELECT arrester_drop_days(%s, %s)", [day, day])
        role.execute(
            "INSERT INTO base_state (application, kind, key, position, state)"
            " VALUES (%s, 'application', %s, %s, '{}')",
            [APPLICATION, APPLICATION, position],
        )
        if position > 85:
            with pytest.raises(psycopg.errors.RaiseException, match="no base covers"):
                role.execute("SELECT arrester_drop_days(%s, %s)", [day, day])
    assert models.Event.objects.count() == 85


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT arrester_drop_days(current_date - 31, current_date - 33)",
        "SELECT arrester_ensure_partitions(current_date + 50, 1)",
        "SELECT arrester_ensure_partitions(current_date + 60, 1)",
    ],
    ids=["dropped", "made", "made where ids came early"],
)
def test_creating_and_dropping_days_take_locks_in_the_order_of_a_fold(
    forty_days: rebuild.Derived, fresh_database: embedded.Urls, statement: str
) -> None:
    before, progress = (NOW - timedelta(days=30)).date(), retention.show_nothing
    assert retention._make_base(APPLICATION, before, now=NOW, progress=progress) == 25
    early = store.NewBatch(id=uuids.uuid7(datetime.now(UTC) + timedelta(days=60)), events=[])
    with streams.locked(APPLICATION) as stream:
        store.record_batches(stream, [early], received_at=NOW)
    failed: list[Exception] = []

    def change() -> None:
        try:
            with psycopg.connect(fresh_database.database) as role:
                role.execute(statement)
        except psycopg.Error as exc:
            failed.append(exc)

    with (
        psycopg.connect(fresh_database.database) as fold,
        psycopg.connect(fresh_database.admin_database, autocommit=True) as admin,
    ):
        # As a fold's COPY does, table after table.
        fold.execute("INSERT INTO batch_seen SELECT * FROM batch_seen WHERE false")
        other = threading.Thread(target=change)
        other.start()
        waits = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while admin.execute(waits).fetchone() is None:
            assert time.monotonic() < deadline
            assert not failed
            time.sleep(0.02)
        fold.execute("INSERT INTO event SELECT * FROM event WHERE false")
        fold.execute("INSERT INTO batch SELECT * FROM batch WHERE false")
        fold.commit()
        other.join()
    assert failed == []


def test_retention_waits_for_no_fold_if_nothing_is_due(fresh_database: embedded.Urls) -> None:
    with (
        psycopg.connect(fresh_database.database) as fold,
        psycopg.connect(fresh_database.database) as role,
    ):
        fold.execute("INSERT INTO event SELECT * FROM event WHERE false")
        role.execute("SET lock_timeout = '1ms'")
        row = role.execute(
            "SELECT * FROM arrester_drop_days(current_date - 30, current_date - 32)"
        ).fetchone()
    assert row == (0, 0)


def test_old_states_are_deleted_after_the_drop_while_folds_continue(
    forty_days: rebuild.Derived,
    fresh_database: embedded.Urls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die() -> None:
        # Days are dropped by now, and no fold waits for the rest.
        with psycopg.connect(fresh_database.database) as fold:
            fold.execute("SET lock_timeout = '1ms'")
            fold.execute("INSERT INTO event SELECT * FROM event WHERE false")
        raise KeyboardInterrupt

    def old_states() -> bool:
        newest = max(models.Base.objects.values_list("position", flat=True))
        task = models.BaseState.objects.filter(kind="application", position__lt=newest)
        snapshot = models.Snapshot.objects.filter(position__lte=newest)
        return task.exists() or snapshot.exists()

    retain()
    assert not old_states()
    before = streams.log()[0].sequence
    with monkeypatch.context() as patch:
        patch.setattr(store, "delete_old_states", die)
        with pytest.raises(KeyboardInterrupt):
            retain(days=20)
    assert streams.log()[0].sequence > before
    assert old_states()
    assert rebuild.differences(APPLICATION) == []
    # Nothing is due any more, and that is done nevertheless.
    assert retain(days=20).dropped.partitions == 0
    assert not old_states()
    assert models.Base.objects.count() == 1
    assert rebuild.differences(APPLICATION) == []
    assert rebuild.live_rows(APPLICATION) == forty_days


def as_shown(application: str, position: int, kept: list[store.StoredState]) -> None:
    """Store a snapshot as if the views had these states."""
    models.Snapshot.objects.filter(application=application).delete()
    for each in kept:
        models.Snapshot.objects.create(application=application, position=position, **each._asdict())


def test_a_base_that_differs_from_the_views_drops_nothing(forty_days: rebuild.Derived) -> None:
    # As if the views of then had been folded otherwise.
    application = state_at_position.packed(ApplicationState(name=APPLICATION, sequence=5))
    wrong = state_at_position.packed(TaskState(id=JFK, failed=999))
    as_shown(APPLICATION, 5, [application, wrong])
    with pytest.raises(NotVerified):
        retain()
    with pytest.raises(CommandError, match="nothing was dropped"):
        call_command("retain", "--days", "30", stdout=StringIO())
    assert not models.Base.objects.exists()
    rebuild.rebuild(APPLICATION)
    assert retain().bases == {APPLICATION: 25}


def test_an_unreadable_base_blocks_no_other_base(forty_days: rebuild.Derived) -> None:
    old = NOW - timedelta(days=35)
    streams.append([histories.failed(1)], received_at=old, application="airport")
    as_shown("airport", 1, [store.StoredState("application", "airport", '{"severity": 1}')])
    with pytest.raises(BrokenState, match="a row of application cannot be read"):
        state_at_position.at("airport", 1)

    with pytest.raises(BrokenState):
        retain()

    assert store.base(APPLICATION).position == 25
    (refusal,) = queries.storage().refusals
    assert (refusal.application, "rebuild" in refusal.reason) == ("airport", True)
    rebuild.rebuild("airport")
    assert retain().bases == {"airport": 1}


def test_a_refusal_is_shown_and_blocks_no_other_base(forty_days: rebuild.Derived) -> None:
    old = NOW - timedelta(days=35)
    # It comes first, and is not what was shown.
    streams.append([histories.failed(1)], received_at=old, application="airport")
    wrong = state_at_position.packed(TaskState(id=JFK, failed=999))
    application = state_at_position.packed(ApplicationState(name="airport", sequence=1))
    as_shown("airport", 1, [application, wrong])
    for _ in range(2):
        with pytest.raises(NotVerified, match="airport"):
            retain()
    assert store.base(APPLICATION).position == 25
    assert streams.log()[0].sequence == 1
    (refusal,) = queries.storage().refusals
    assert (refusal.application, "rebuild" in refusal.reason) == ("airport", True)
    assert queries.metrics().refused == {"airport"}
    assert (
        "Retention paused" in logged_in(make_user("ana", "admin")).get("/settings").content.decode()
    )

    rebuild.rebuild("airport")
    assert retain().dropped.partitions == 28
    assert queries.storage().refusals == ()


def test_quarantined_entries_are_deleted_with_their_days(redis: Redis) -> None:
    for number in range(4):
        streams.put(redis, {"hello": str(number)})
    fold_stream.fold_stream(APPLICATION)
    first, second, third, fourth = models.Quarantine.objects.order_by("id")
    long_ago = NOW - timedelta(days=31)
    for each, change in (
        (first, {"requeued_at": long_ago}),
        (second, {"dismissed_at": long_ago}),
        (third, {"dismissed_at": NOW}),
        (fourth, {"received_at": long_ago}),
    ):
        models.Quarantine.objects.filter(id=each.id).update(**change)
    retain()
    assert list(models.Quarantine.objects.order_by("id")) == [third]


def test_the_next_run_completes_a_retention_that_died_before_the_drop(
    forty_days: rebuild.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(before: date, *, batches_before: date) -> store.Dropped:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "drop_days", die)
        with pytest.raises(KeyboardInterrupt):
            retain()
    assert len(streams.log()) == 85
    assert rebuild.differences(APPLICATION) == []
    done = retain()
    assert (done.bases, done.dropped.partitions) == ({}, 28)
    assert rebuild.live_rows(APPLICATION) == forty_days
    assert rebuild.differences(APPLICATION) == []


def test_counts_are_deleted_after_400_days() -> None:
    store.ensure_partitions((NOW - timedelta(days=40)).date(), days=40)
    for age in (1, 390, 401, 500):
        old = replace(histories.failed(1), occurred_at=NOW - timedelta(days=age))
        streams.append([old], received_at=NOW - timedelta(days=35))
    # One that came late counts in a bucket that the base forgets.
    streams.append([old], received_at=NOW - timedelta(days=1))
    assert models.MinuteCount.objects.count() == 4

    retain()

    for model in COUNTS:
        assert sorted(model.objects.values_list("count", flat=True)) == [1, 1, 1]
    assert rebuild.differences(APPLICATION) == []
    assert queries.application(APPLICATION).state.failed == 5


def test_old_counts_of_a_retired_application_are_deleted() -> None:
    then = NOW - timedelta(days=500)
    events = [replace(each, occurred_at=then) for each in histories.paused(0)]
    streams.append(events, received_at=then)
    # One that came late, and is in the log yet, counts where the base forgets.
    streams.append([events[0]], received_at=NOW - timedelta(days=1))
    retention.retain(days=30, replay_days=30, now=then + timedelta(days=40))
    position = store.base(APPLICATION).position
    before = [model.objects.get().count for model in COUNTS]
    assert models.HeldChange.objects.exists()

    for _ in range(2):
        retain()
        assert store.base(APPLICATION).position == position == len(events)
        assert [model.objects.get().count for model in COUNTS] == [1] * len(COUNTS) != before
        assert not models.HeldChange.objects.exists()
        assert rebuild.differences(APPLICATION) == []


def test_counts_of_the_last_400_days_cannot_be_deleted(fresh_database: embedded.Urls) -> None:
    with (
        psycopg.connect(fresh_database.database) as role,
        pytest.raises(psycopg.errors.RaiseException, match="are not forgotten"),
    ):
        role.execute("SELECT arrester_forget_buckets(%s, now())", [APPLICATION])


def test_a_day_in_the_default_partition_is_dropped(fresh_database: embedded.Urls) -> None:
    streams.append([histories.failed(1)], received_at=NOW - timedelta(days=40))
    streams.append([histories.failed(2)], received_at=NOW)
    assert retain().bases == {APPLICATION: 1}
    assert [each.sequence for each in streams.log()] == [2]
    assert models.Batch.objects.count() == 1
    with psycopg.connect(fresh_database.migrate_database, autocommit=True) as owner:
        for table in ("event_default", "batch_default", "batch_seen_default"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
                owner.execute(f"DELETE FROM {table}")


def test_a_batch_older_than_the_horizon_is_quarantined_and_not_doubled(redis: Redis) -> None:
    old = uuids.uuid7(NOW - timedelta(days=31))
    new = uuids.uuid7(NOW - timedelta(days=29))
    for _ in range(2):
        streams.send(redis, [histories.failed(1)], batch=old)
        streams.send(redis, [histories.failed(2)], batch=new)
        fold_stream.fold_stream(APPLICATION)

    (kept,) = queries.quarantine().rows
    assert kept.batch == old
    assert "replay horizon" in kept.reason
    assert len(streams.log()) == 1
    # The sender receives the refusal, so that it does not send them again and again.
    assert streams.confirmed(redis) == {old, new}
    assert kept.too_old
    # It was understood: nothing puts it back that does not name it.
    assert queries.lag(APPLICATION).quarantined == 0
    assert actions.requeue(APPLICATION, actor="ana") == actions.Requeued(requeued=0, invalid=0)
    assert run("requeue") == "flights: 0 requeued, 0 still invalid\n"
    assert run("requeue", "--batch", str(old)) == "flights: 1 requeued, 0 still invalid\n"
    assert run("requeue", "--old") == "flights: 0 requeued, 0 still invalid\n"
    streams.send(redis, [histories.failed(1)], batch=old)
    fold_stream.fold_stream(APPLICATION)
    assert len(streams.log()) == 3  # The batch, once, and who had it put back.
    streams.assert_exact()


@pytest.mark.parametrize("of_its_own", [True, False], ids=["partition", "default"])
def test_a_raised_horizon_is_limited_by_the_kept_ids(redis: Redis, of_its_own: bool) -> None:
    def sent_again() -> int:
        for batch in (dropped, kept):
            streams.send(redis, [histories.failed(1)], batch=batch)
        fold_stream.fold_stream(APPLICATION)
        return len(streams.log())

    then = NOW - timedelta(days=12)
    if of_its_own:
        store.ensure_partitions(then.date(), days=13)
    dropped, kept = uuids.uuid7(then), uuids.uuid7(NOW - timedelta(days=8))
    assert sent_again() == 2
    retention.retain(days=7, replay_days=7)
    assert store.batch_ids_since() == (NOW - timedelta(days=9)).date()
    assert settings.ENVIRONMENT.replay_days == 30
    assert sent_again() == 2
    assert [each.batch for each in queries.quarantine().rows] == [dropped]
    # Nor does it go back when others are dropped, or none.
    retention.retain(days=7, replay_days=11)
    assert store.batch_ids_since() == (NOW - timedelta(days=9)).date()
    streams.assert_exact()


def test_ids_of_a_fast_clock_get_a_partition(redis: Redis, fresh_database: embedded.Urls) -> None:
    def in_default() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM batch_seen WHERE tableoid = 'batch_seen_default'::regclass"
            )
            return int(cursor.fetchone()[0])

    def send() -> None:
        for batch in early:
            streams.send(redis, [histories.failed(1)], batch=batch, application="fast")
            fold_stream.fold_stream("fast")

    early = [uuids.uuid7(NOW + timedelta(days=number)) for number in range(39, 44)]
    send()
    assert in_default() == 5
    # The days come nearer, and have partitions as any other.
    soon = (NOW + timedelta(days=40)).date()
    assert store.ensure_partitions(soon, days=8) == 3 * 8
    assert in_default() == 1
    assert {f"{soon + timedelta(days=number):%Y%m%d}" for number in range(8)} < partitions(
        "batch_seen"
    )
    other = uuids.uuid7(NOW + timedelta(days=40))
    streams.send(redis, [histories.failed(1)], batch=other)
    fold_stream.fold_stream(APPLICATION)
    assert in_default() == 1
    # They are known there as before, and guarded.
    send()
    assert len(streams.log("fast")) == 5
    for url in (fresh_database.migrate_database, fresh_database.database):
        with psycopg.connect(url, autocommit=True) as role:
            for table in ("batch_seen_default", f"batch_seen_{soon:%Y%m%d}"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    role.execute(f"DELETE FROM {table}")


def test_the_whole_horizon_is_accepted_if_no_ids_were_dropped(redis: Redis) -> None:
    streams.send(redis, [histories.failed(1)], batch=uuids.uuid7(NOW - timedelta(days=29)))
    fold_stream.fold_stream(APPLICATION)
    retain()
    assert store.batch_ids_since() is None
    assert len(streams.log()) == 1


def run(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_ids_of_batches_are_unique_across_days_and_dropped_after_the_horizon() -> None:
    first = (NOW - timedelta(days=40)).date()
    store.ensure_partitions(first, days=41)
    store.open_stream(APPLICATION)
    made = [uuids.uuid7(NOW - timedelta(days=number)) for number in (0, 1, 20, 39)] + [uuid4()]
    with streams.locked(APPLICATION) as stream:
        batches = [store.NewBatch(id=id, events=[]) for id in made]
        store.record_batches(stream, batches, received_at=NOW)
    assert store.seen_batches(APPLICATION, made) == set(made)
    assert f"{first:%Y%m%d}" in partitions("batch_seen")
    with pytest.raises(Exception, match="duplicate key"), streams.locked(APPLICATION) as stream:
        store.record_batches(stream, [store.NewBatch(id=made[2], events=[])], received_at=NOW)

    retain()

    assert store.seen_batches(APPLICATION, made) == set(made) - {made[3]}
    oldest = min(name for name in partitions("batch_seen") if name.isdecimal())
    assert date.fromisoformat(oldest) == (NOW - timedelta(days=32)).date()


def test_housekeeping_retains(forty_days: rebuild.Derived) -> None:
    tasks.housekeeping()
    assert store.base(APPLICATION).position == 25
    out = StringIO()
    call_command("retain", stdout=out)
    assert out.getvalue() == "no events are older than 30 days\n"
    call_command("retain", "--days", "20", stdout=out)
    assert "flights: the log begins at @45" in out.getvalue()
    with pytest.raises(CommandError, match="today is never dropped"):
        call_command("retain", "--days", "0")


def test_retention_keeps_the_newest_days_that_fit(
    forty_days: rebuild.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Housekeeping has the time of its own, which may be the next day.
    today = datetime.now(UTC).date()
    sizes = dict(store.bytes_by_day())
    ten_days = sum(size for day, size in sizes.items() if day >= today - timedelta(days=10))
    monkeypatch.setattr(retention, "GIGABYTE", ten_days)

    def kept(gigabytes: int, days: int = 30) -> int:
        return retention.days_to_keep(days=days, gigabytes=gigabytes, today=today)

    assert (kept(0), kept(1), kept(1, days=5), kept(1000)) == (30, 10, 5, 30)
    limited = dataclasses.replace(settings.ENVIRONMENT, retention_gigabytes=1)
    monkeypatch.setattr(settings, "ENVIRONMENT", limited)
    tasks.housekeeping()
    assert min(partitions("event")) == f"{today - timedelta(days=10):%Y%m%d}"
    # Today and yesterday are always kept.
    monkeypatch.setattr(retention, "GIGABYTE", 1)
    assert kept(1) == 1
