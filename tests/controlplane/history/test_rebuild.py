"""`arrester rebuild`: views are derived again, and wrong rows are found."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from itertools import pairwise

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from redis import Redis

from arrester.controlplane import actions, embedded, models, store
from arrester.controlplane.history import rebuild, rebuild_swap, state_at_position
from arrester.controlplane.ingest import fold_stream
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, JFK
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def before(redis: Redis) -> rebuild.Derived:
    """Return the rows of an application with all kinds of states."""
    streams.send(redis, [*histories.started(), *histories.paused(), histories.failed(8)])
    fold_stream.fold_stream(APPLICATION)
    actions.skip_record(JFK.digest, actor="ana", reason="bad")
    actions.shut_down_application(APPLICATION, actor="ben", reason="night")
    rows = rebuild.live_rows(APPLICATION)
    assert all(rows.values())
    return rows


def run(*words: str) -> str:
    out = StringIO()
    call_command("rebuild", *words, stdout=out)
    return out.getvalue()


def test_a_rebuild_gives_the_live_rows(before: rebuild.Derived) -> None:
    for model in rebuild.VIEWS:
        model._default_manager.all().delete()
    assert run() == "flights @ 10: rebuilt\n"
    assert rebuild.live_rows(APPLICATION) == before
    assert run("--verify") == "flights: 0 rows differ\n"


@pytest.mark.parametrize("options", [(), ("--verify",)])
@pytest.mark.parametrize("lock", ["stream", "rebuild"])
def test_a_rebuild_reports_what_it_waits_for(
    before: rebuild.Derived,
    monkeypatch: pytest.MonkeyPatch,
    lock: str,
    options: tuple[str, ...],
) -> None:
    monkeypatch.setattr(rebuild, "LOCK_SECONDS", 0.1)
    held, reported, lines = threading.Event(), threading.Event(), []

    def report(line: str, application: str) -> None:
        lines.append(line % application)
        reported.set()

    def hold() -> None:
        locked = streams.locked if lock == "stream" else store.maintenance_lock
        try:
            with locked(APPLICATION):
                held.set()
                reported.wait(PATIENCE_SECONDS)
        finally:
            connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(PATIENCE_SECONDS)
    monkeypatch.setattr(rebuild.log, "warning", report)
    run(*options)
    holder.join()
    (line,) = lines
    assert "flights" in line and "waiting" in line


def test_verify_reports_differences_and_changes_nothing(before: rebuild.Derived) -> None:
    models.Task.objects.update(failed=999)
    models.Thread.objects.all().delete()
    with pytest.raises(CommandError, match="2 rows differ"):
        run(APPLICATION, "--verify")
    assert models.Task.objects.get().failed == 999
    run(APPLICATION)
    assert rebuild.live_rows(APPLICATION) == before


def test_an_unknown_application_is_named() -> None:
    with pytest.raises(CommandError, match="unknown application: other"):
        run("other")


def test_folds_continue_during_a_rebuild(
    before: rebuild.Derived, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "NEAR", 2)
    monkeypatch.setattr(state_at_position, "EVENTS_PER_SNAPSHOT", 3)
    models.Task.objects.update(failed=999)
    models.HourCount.objects.create(
        application=APPLICATION, hour=histories.NOON, fingerprint="never", count=1, sequence=1
    )
    save, folded = rebuild_swap.save, 0

    def save_while_more_comes(
        application: str, wanted: rebuild_swap.Rows, *, deleted: rebuild_swap.Rows
    ) -> None:
        nonlocal folded
        save(application, wanted, deleted=deleted)
        if not folded:
            beside = models.ShadowRow.objects.exclude(view="snapshot")
            assert {each.view for each in beside} == {"task", "-hour_count"}
            streams.send(redis, [histories.failed(9), *histories.paused(3, key="EWR")])
            folded = fold_stream.fold_stream(APPLICATION).events

    monkeypatch.setattr(rebuild_swap, "save", save_while_more_comes)
    assert rebuild.rebuild(APPLICATION) == 14
    assert folded == 4
    streams.assert_exact()
    assert streams.task(JFK.digest).failed == 3
    assert not models.ShadowRow.objects.exists()
    # States were kept on the way, and those that the fold kept meanwhile are looked at, too.
    assert [store.nearest_snapshot(APPLICATION, position) for position in (5, 8, 14)] == [0, 6, 14]
    assert_snapshots_equal_the_log()


def assert_snapshots_equal_the_log() -> None:
    """Check that each snapshot has exactly the states of the log."""
    for position in models.Snapshot.objects.values_list("position", flat=True).distinct():
        whole = rebuild.derive(APPLICATION, until=position).state
        assert set(store.states_at(APPLICATION, position)) == {
            state_at_position.packed(each) for each in whole.states()
        }


def test_a_live_row_that_changes_during_a_rebuild_is_corrected(
    before: rebuild.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, changed = rebuild_swap.save, 0

    def save_and_change(
        application: str, wanted: rebuild_swap.Rows, *, deleted: rebuild_swap.Rows
    ) -> None:
        nonlocal changed
        save(application, wanted, deleted=deleted)
        if not changed:
            # As by a worker whose code folds an event otherwise, behind what was compared.
            changed = models.Task.objects.update(failed=999, sequence=11)
            count = {"application": APPLICATION, "fingerprint": "never", "count": 1}
            models.HourCount.objects.create(hour=histories.NOON, sequence=11, **count)

    monkeypatch.setattr(rebuild, "NEAR", 1)
    monkeypatch.setattr(rebuild_swap, "save", save_and_change)
    rebuild.rebuild(APPLICATION)
    assert changed
    assert rebuild.live_rows(APPLICATION) == before


def versions() -> dict[str, set[tuple[str, str]]]:
    """Return the versions of all rows."""
    tables = [model._meta.db_table for model in rebuild.VIEWS]
    with connection.cursor() as cursor:
        found = {}
        for table in (*tables, rebuild_swap.SNAPSHOT):
            cursor.execute(f"SELECT ctid::text, xmin::text FROM {table}")
            found[table] = set(cursor.fetchall())
    return found


@pytest.fixture
def kept(before: rebuild.Derived, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make snapshots at some positions of the log; return the positions."""
    monkeypatch.setattr(rebuild, "NEAR", 1)
    monkeypatch.setattr(state_at_position, "EVENTS_PER_SNAPSHOT", 2)
    rebuild.rebuild(APPLICATION)
    streams.append(histories.paused(9, key="EWR"), received_at=histories.NOON)
    state_at_position.make_snapshot_if_due(APPLICATION)
    streams.append(histories.paused(3), received_at=histories.NOON)
    assert_snapshots_equal_the_log()
    return [4, 8, 13]


@pytest.mark.parametrize("near", [1, 2_000])
def test_correct_rows_are_not_written_again(
    kept: list[int], near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "NEAR", near)
    for _ in range(2):
        there = versions()
        assert {position for (position,) in positions()} == {*kept}
        rebuild.rebuild(APPLICATION)
        assert versions() == there


def positions() -> list[tuple[int]]:
    return list(models.Snapshot.objects.values_list("position"))


def test_snapshots_are_corrected_by_a_rebuild(
    kept: list[int], fresh_database: embedded.Urls
) -> None:
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
        rebuild.rebuild(APPLICATION)
        assert_snapshots_equal_the_log()
        there = [0, *sorted({position for (position,) in positions()}), 16]
        # As near to any position as live folds keep them.
        assert max(after - before for before, after in pairwise(there)) <= 6, damage
        assert not models.ShadowRow.objects.exists()
    for position in range(1, 17):
        whole = rebuild.derive(APPLICATION, until=position).state
        seen = state_at_position.at(APPLICATION, position)
        assert {state_at_position.packed(each) for each in seen.states()} == {
            state_at_position.packed(each) for each in whole.states()
        }


def test_verify_makes_no_snapshots(kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    models.Snapshot.objects.all().delete()
    monkeypatch.setattr(rebuild_swap, "save_snapshot", None)
    assert rebuild.differences(APPLICATION) == []
    assert not models.ShadowRow.objects.exists()
    assert not models.Snapshot.objects.exists()


def test_a_failed_rebuild_keeps_the_live_views(
    before: rebuild.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(application: str, *, but: list[int]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rebuild, "NEAR", 2)
    models.Task.objects.update(failed=999)
    wrong = rebuild.live_rows(APPLICATION)
    with monkeypatch.context() as patch:
        # Before the last step of the transaction.
        patch.setattr(store, "delete_snapshots", die)
        with pytest.raises(KeyboardInterrupt):
            rebuild.rebuild(APPLICATION)
    assert models.ShadowRow.objects.exists()
    assert rebuild.live_rows(APPLICATION) == wrong
    rebuild.rebuild(APPLICATION)
    assert rebuild.live_rows(APPLICATION) == before
    assert not models.ShadowRow.objects.exists()


def test_views_are_rebuilt_while_workers_fold(redis: Redis, before: rebuild.Derived) -> None:
    done = threading.Event()

    def fold() -> None:
        number = 0
        while not done.is_set() or number < 20:
            number += 1
            streams.send(redis, [histories.failed(number), histories.failed(number, key="EWR")])
            fold_stream.fold_stream(APPLICATION)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        folding = pool.submit(fold)
        for _ in range(5):
            rebuild.rebuild(APPLICATION)
        done.set()
        folding.result(60)
    streams.assert_exact()


def test_a_rebuild_reports_its_progress(
    before: rebuild.Derived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "PROGRESS_EVERY", 4)
    shown = run("--verify")
    assert shown == "flights: 10 of 10 events\nflights: 0 rows differ\n"
