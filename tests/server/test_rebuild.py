"""`manage.py rebuild`: the views can be thrown away, and a wrong row is found."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from itertools import pairwise

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from redis import Redis

from controlplane import actions, embedded, ingest, models, past, rebuilding, shadow, store
from tests import histories
from tests.histories import APPLICATION, JFK
from tests.server import streams

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def before(redis: Redis) -> rebuilding.Derived:
    """Return the rows of an application with a bit of everything."""
    streams.send(redis, [*histories.started(), *histories.paused(), histories.failed(8)])
    ingest.drain(APPLICATION)
    actions.skip_record(JFK.digest, actor="ana", reason="bad")
    actions.shut_down_application(APPLICATION, actor="ben", reason="night")
    rows = rebuilding.live(APPLICATION)
    assert all(rows.values())
    return rows


def run(*words: str) -> str:
    out = StringIO()
    call_command("rebuild", *words, stdout=out)
    return out.getvalue()


def test_rebuild_equals_live(before: rebuilding.Derived) -> None:
    for model in rebuilding.VIEWS:
        model._default_manager.all().delete()
    assert run() == "flights @ 10: derived again\n"
    assert rebuilding.live(APPLICATION) == before
    assert run("--verify") == "flights: 0 rows differ\n"


def test_verify_finds_what_differs_and_changes_nothing(before: rebuilding.Derived) -> None:
    models.Task.objects.update(failed=999)
    models.Thread.objects.all().delete()
    with pytest.raises(CommandError, match="2 rows differ"):
        run(APPLICATION, "--verify")
    assert models.Task.objects.get().failed == 999
    run(APPLICATION)
    assert rebuilding.live(APPLICATION) == before


def test_days_that_are_not_known_are_found_and_put_right(before: rebuilding.Derived) -> None:
    found = streams.known_days()
    assert len(found) == 1
    for change in ({"first": 2}, {"oldest": F("newest")}, {"newest": F("oldest")}, None):
        rows = models.LogDay.objects.all()
        rows.delete() if change is None else rows.update(**change)
        with pytest.raises(CommandError, match="1 rows differ"):
            run("--verify")
        assert streams.known_days() != found
        run()
        assert streams.known_days() == found
        assert run("--verify") == "flights: 0 rows differ\n"
    # What says more than there is leaves nothing out.
    models.LogDay.objects.update(oldest=F("oldest") - timedelta(days=1))
    assert rebuilding.differences(APPLICATION) == []


def test_an_unknown_application_is_named() -> None:
    with pytest.raises(CommandError, match="there is no application other"):
        run("other")


def test_folds_go_on_while_views_are_rebuilt(
    before: rebuilding.Derived, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "NEAR", 2)
    monkeypatch.setattr(past, "EVENTS_PER_SNAPSHOT", 3)
    models.Task.objects.update(failed=999)
    models.HourCount.objects.create(
        application=APPLICATION, hour=histories.NOON, fingerprint="never", count=1, sequence=1
    )
    save, folded = shadow.save, 0

    def save_while_more_comes(application: str, wanted: shadow.Rows, *, gone: shadow.Rows) -> None:
        nonlocal folded
        save(application, wanted, gone=gone)
        if not folded:
            beside = models.ShadowRow.objects.exclude(view="snapshot")
            assert {each.view for each in beside} == {"task", "-hour_count"}
            streams.send(redis, [histories.failed(9), *histories.paused(3, key="EWR")])
            folded = ingest.drain(APPLICATION).events

    monkeypatch.setattr(shadow, "save", save_while_more_comes)
    assert rebuilding.rebuild(APPLICATION) == 14
    assert folded == 4
    streams.assert_exact()
    assert streams.task(JFK.digest).failed == 3
    assert not models.ShadowRow.objects.exists()
    # States were kept on the way, and those that the fold kept meanwhile are looked at, too.
    assert [store.nearest(APPLICATION, position) for position in (5, 8, 14)] == [0, 6, 14]
    assert_kept_as_the_log_says()


def assert_kept_as_the_log_says() -> None:
    """The states of each position that some are kept at are those of the log, and no others."""
    for position in models.Snapshot.objects.values_list("position", flat=True).distinct():
        whole = rebuilding.derive(APPLICATION, until=position).state
        assert set(store.kept(APPLICATION, position)) == {
            past.packed(each) for each in past.everything(whole)
        }


def test_a_live_row_that_changes_while_it_is_not_looked_at_is_put_right(
    before: rebuilding.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, changed = shadow.save, 0

    def save_and_change(application: str, wanted: shadow.Rows, *, gone: shadow.Rows) -> None:
        nonlocal changed
        save(application, wanted, gone=gone)
        if not changed:
            # As by a worker whose code folds an event otherwise, behind what was compared.
            changed = models.Task.objects.update(failed=999, sequence=11)
            count = {"application": APPLICATION, "fingerprint": "never", "count": 1}
            models.HourCount.objects.create(hour=histories.NOON, sequence=11, **count)

    monkeypatch.setattr(rebuilding, "NEAR", 1)
    monkeypatch.setattr(shadow, "save", save_and_change)
    rebuilding.rebuild(APPLICATION)
    assert changed
    assert rebuilding.live(APPLICATION) == before


def versions() -> dict[str, set[tuple[str, str]]]:
    """Return which version of which rows there are."""
    tables = [model._meta.db_table for model in rebuilding.VIEWS]
    with connection.cursor() as cursor:
        found = {}
        for table in (*tables, shadow.SNAPSHOT):
            cursor.execute(f"SELECT ctid::text, xmin::text FROM {table}")
            found[table] = set(cursor.fetchall())
    return found


@pytest.fixture
def kept(before: rebuilding.Derived, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keep states at some positions of that application's log; return these."""
    monkeypatch.setattr(rebuilding, "NEAR", 1)
    monkeypatch.setattr(past, "EVENTS_PER_SNAPSHOT", 2)
    rebuilding.rebuild(APPLICATION)
    streams.append(histories.paused(9, key="EWR"), received_at=histories.NOON)
    past.keep_if_due(APPLICATION)
    streams.append(histories.paused(3), received_at=histories.NOON)
    assert_kept_as_the_log_says()
    return [4, 8, 13]


@pytest.mark.parametrize("near", [1, 2_000])
def test_what_is_right_is_not_written_again(
    kept: list[int], near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "NEAR", near)
    for _ in range(2):
        there = versions()
        assert {position for (position,) in positions()} == {*kept}
        rebuilding.rebuild(APPLICATION)
        assert versions() == there


def positions() -> list[tuple[int]]:
    return list(models.Snapshot.objects.values_list("position"))


def test_states_on_the_way_are_put_right(kept: list[int], fresh_database: embedded.Urls) -> None:
    for damage in (
        """UPDATE snapshot SET state = replace(state, '"failed":', '"failed":99')""",
        "UPDATE snapshot SET state = 'null' WHERE position = 8",
        "UPDATE snapshot SET key = 'other ' || key WHERE kind <> 'task'",
        "UPDATE snapshot SET kind = 'nothing' WHERE position = 4",
        "UPDATE snapshot SET position = position - 1",
        "DELETE FROM snapshot WHERE kind = 'application'",
        "DELETE FROM snapshot WHERE kind = 'task'",
        "DELETE FROM snapshot WHERE position = (SELECT max(position) FROM snapshot)",
        "DELETE FROM snapshot",
        "INSERT INTO snapshot SELECT application, kind, key, 9999, state FROM snapshot"
        " WHERE position = (SELECT min(position) FROM snapshot)",
    ):
        with psycopg.connect(fresh_database.migrate_database) as owner:
            assert owner.execute(damage.encode()).rowcount, damage
        rebuilding.rebuild(APPLICATION)
        assert_kept_as_the_log_says()
        there = [0, *sorted({position for (position,) in positions()}), 16]
        # As near to any position as live folds keep them.
        assert max(after - before for before, after in pairwise(there)) <= 6, damage
        assert not models.ShadowRow.objects.exists()
    for position in range(1, 17):
        whole = rebuilding.derive(APPLICATION, until=position).state
        seen = past.at(APPLICATION, position)
        assert {past.packed(each) for each in past.everything(seen)} == {
            past.packed(each) for each in past.everything(whole)
        }


def test_to_verify_keeps_nothing(kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    models.Snapshot.objects.all().delete()
    monkeypatch.setattr(shadow, "save_snapshot", None)
    assert rebuilding.differences(APPLICATION) == []
    assert not models.ShadowRow.objects.exists()
    assert not models.Snapshot.objects.exists()


def test_a_rebuild_that_dies_leaves_the_live_views(
    before: rebuilding.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(application: str, *, but: list[int]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rebuilding, "NEAR", 2)
    models.Task.objects.update(failed=999)
    wrong = rebuilding.live(APPLICATION)
    with monkeypatch.context() as patch:
        # Before the last step of the transaction.
        patch.setattr(store, "forget_snapshots", die)
        with pytest.raises(KeyboardInterrupt):
            rebuilding.rebuild(APPLICATION)
    assert models.ShadowRow.objects.exists()
    assert rebuilding.live(APPLICATION) == wrong
    rebuilding.rebuild(APPLICATION)
    assert rebuilding.live(APPLICATION) == before
    assert not models.ShadowRow.objects.exists()


def test_views_are_rebuilt_while_workers_fold(redis: Redis, before: rebuilding.Derived) -> None:
    done = threading.Event()

    def fold() -> None:
        number = 0
        while not done.is_set() or number < 20:
            number += 1
            streams.send(redis, [histories.failed(number), histories.failed(number, key="EWR")])
            ingest.drain(APPLICATION)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        folding = pool.submit(fold)
        for _ in range(5):
            rebuilding.rebuild(APPLICATION)
        done.set()
        folding.result(60)
    streams.assert_exact()


def test_progress_is_shown(before: rebuilding.Derived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "PROGRESS_EVERY", 4)
    shown = run("--verify")
    assert shown == "flights: 10 of 10 events\nflights: 0 rows differ\n"
