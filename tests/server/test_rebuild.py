"""`manage.py rebuild`: the views can be thrown away, and a wrong row is found."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from redis import Redis

from controlplane import actions, ingest, models, past, rebuilding, shadow, store
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

    def save_while_more_comes(application: str, found: rebuilding.Derived) -> None:
        nonlocal folded
        save(application, found)
        if not folded:
            streams.send(redis, [histories.failed(9), *histories.paused(3, key="EWR")])
            folded = ingest.drain(APPLICATION).events

    monkeypatch.setattr(shadow, "save", save_while_more_comes)
    assert rebuilding.rebuild(APPLICATION) == 14
    assert folded == 4
    streams.assert_exact()
    assert streams.task(JFK.digest).failed == 3
    assert not models.ShadowRow.objects.exists()
    # States were kept on the way, so that the past is as near as before.
    assert [store.nearest(APPLICATION, position) for position in (3, 8, 14)] == [3, 6, 9]


def test_states_on_the_way_are_put_beside_as_they_are_made(
    before: rebuilding.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "NEAR", 1)
    monkeypatch.setattr(past, "EVENTS_PER_SNAPSHOT", 3)
    beside: list[int] = []

    def note(application: str, found: rebuilding.Derived) -> None:
        beside.append(models.ShadowRow.objects.filter(view="snapshot").count())
        save(application, found)

    save = shadow.save
    with monkeypatch.context() as patch:
        patch.setattr(shadow, "save", note)
        rebuilding.rebuild(APPLICATION)
    # Before the views were.
    assert beside[0] == models.Snapshot.objects.count() > 3
    for position in (3, 5, 9):
        whole = rebuilding.derive(APPLICATION, until=position).state
        seen = past.at(APPLICATION, position)
        assert {past.packed(each) for each in past.everything(seen)} == {
            past.packed(each) for each in past.everything(whole)
        }

    # To verify keeps nothing anywhere.
    monkeypatch.setattr(past, "touched", None)
    assert rebuilding.differences(APPLICATION) == []
    assert not models.ShadowRow.objects.exists()


def test_a_rebuild_that_dies_leaves_the_live_views(
    before: rebuilding.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(application: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rebuilding, "NEAR", 2)
    with monkeypatch.context() as patch:
        # The last step before the commit.
        patch.setattr(store, "swap_snapshots", die)
        with pytest.raises(KeyboardInterrupt):
            rebuilding.rebuild(APPLICATION)
    assert models.ShadowRow.objects.exists()
    assert rebuilding.live(APPLICATION) == before
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
