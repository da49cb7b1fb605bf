"""Discarding dead letters: each that waits, once, with its reason; nothing else."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import call_command
from redis import Redis

from arrester.controlplane import actions, models, queries
from arrester.controlplane.actions import dead_letters
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.queries import DeadLetterFilter
from arrester.controlplane.views import projections
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import DeadLettersDiscarded, Event, StoredEvent
from arrester.domain.identity import uuids
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE, JFK, NOON, dead_lettered, failed, held, redriven

WAITING, REDRIVEN, PROCESSED, FAILED_AGAIN, DISCARDED = models.DeadLetterStatus
ID = uuids.uuid7(NOON)
OF_JFK = DeadLetterFilter(task=JFK.digest)


@pytest.fixture(autouse=True)
def some_dead_letters(fresh_database: object, redis: Redis) -> None:
    """Have dead letters of three tasks: waiting, redriven and failed again."""
    send(redis, *histories.started(), failed(3), dead_lettered([3, 5, 8, 9], causes=[1, 0, 1, 1]))
    send(redis, dead_lettered([4, 5], key="EWR"), dead_lettered([1], key=None))
    send(redis, redriven([8, 9]), dead_lettered([9], minute=1))


def send(redis: Redis, *events: Event) -> None:
    streams.send(redis, events)
    fold_stream.fold_stream(APPLICATION)


def discard(**given: object) -> actions.Discarded:
    values = {"actor": "ana", "reason": "duplicates", "id": ID} | given
    return actions.discard_dead_letters(APPLICATION, **values)  # type: ignore[arg-type]  # by name


def statuses(task: str = JFK.digest) -> dict[int | None, models.DeadLetterStatus]:
    rows = models.DeadLetter.objects.filter(task=UUID(hex=task))
    return {row.position: models.DeadLetterStatus(row.status) for row in rows}


def waiting() -> int:
    return queries.count_dead_letters(DeadLetterFilter(status="open")) or 0


def verified() -> bool:
    out = StringIO()
    call_command("rebuild", "--verify", stdout=out)
    return out.getvalue() == f"{APPLICATION}: 0 rows differ\n"


def discards() -> list[DeadLettersDiscarded]:
    found = (each.event.data for each in streams.log())
    return [each for each in found if isinstance(each, DeadLettersDiscarded)]


def test_those_of_a_filter_that_wait_are_discarded() -> None:
    before = waiting()
    assert discard(wanted=OF_JFK) == actions.Discarded(discarded=3, unchanged=0)
    assert statuses() == {3: DISCARDED, 5: DISCARDED, 8: REDRIVEN, 9: DISCARDED}
    assert waiting() == before - 3
    [event] = discards()
    assert (event.task, event.count, event.actor, event.reason) == ("JFK", 3, "ana", "duplicates")
    assert event.records.positions is not None
    newest = queries.task_history(JFK.digest).rows[0]
    assert newest.event.data == event
    [entry] = models.AuditEntry.objects.filter(act="DeadLettersDiscarded")
    assert (entry.actor, entry.about) == ("ana", APPLICATION)
    assert queries.audit(queries.AuditFilter(kind="tasks")).rows[0].actor == "ana"
    assert verified()


def test_a_second_click_changes_nothing_and_has_the_same_result(redis: Redis) -> None:
    first = discard(wanted=OF_JFK)
    send(redis, dead_lettered([99], minute=2))
    assert discard(wanted=OF_JFK) == first
    assert (statuses()[99], len(discards())) == (WAITING, 1)
    with pytest.raises(InvalidValue, match="id that no other act has"):
        discard(wanted=OF_JFK, reason="another one")


def test_chosen_ids_are_counted_also_those_that_do_not_wait() -> None:
    rows = models.DeadLetter.objects.filter(position__in=[3, 4, 8])
    ids = [row.id.hex for row in rows] + ["00" * 16]
    assert discard(ids=ids) == actions.Discarded(discarded=2, unchanged=2)
    assert statuses()[8] is REDRIVEN
    assert {each.task for each in discards()} == {"EWR", "JFK"}
    again = uuids.uuid7(NOON + timedelta(seconds=1))
    assert discard(ids=ids, id=again) == actions.Discarded(discarded=0, unchanged=4)
    assert verified()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"wanted": OF_JFK, "reason": " "}, "reason"),
        ({"wanted": DeadLetterFilter()}, "filter"),
        ({}, "filter"),
        ({"ids": []}, "1 to 10,000 ids"),
        ({"ids": ["no id"]}, "32 hexadecimal digits"),
        ({"wanted": DeadLetterFilter(status="LOST")}, "status"),
        ({"wanted": OF_JFK, "actor": "\ud800"}, "actor"),
    ],
)
def test_an_invalid_request_discards_nothing(given: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        discard(**given)
    with pytest.raises(NotFound):
        actions.discard_dead_letters("none", wanted=OF_JFK, actor="ana", reason="so", id=ID)
    assert discards() == []


def test_many_are_several_events_and_the_oldest_of_too_many(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_RECORDS", 4)
    monkeypatch.setattr(dead_letters, "MAX_DISCARDED", 10)
    send(redis, dead_lettered(range(100, 120), minute=3))
    of_cause = DeadLetterFilter(fingerprint=FAILURE.fingerprint, since=NOON + timedelta(minutes=3))
    assert discard(wanted=of_cause) == actions.Discarded(discarded=10, unchanged=0, more=True)
    assert [each.count for each in discards()] == [4, 4, 2]
    assert {at for at, status in statuses().items() if status is DISCARDED} == {*range(100, 110)}
    assert verified()


def test_ids_that_are_not_computed_of_positions_are_kept(redis: Redis) -> None:
    models.DeadLetter.objects.filter(position=3).update(id=UUID(int=7))
    assert discard(wanted=DeadLetterFilter(task=JFK.digest)).discarded == 3
    assert statuses()[3] is DISCARDED
    assert discards()[0].records.ids is not None


def test_a_failed_transaction_discards_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before, project = len(streams.log()), projections.project

    def die(application: str, stored: list[StoredEvent]) -> None:
        project(application, stored)
        raise ConnectionError("the worker dies")

    monkeypatch.setattr(projections, "project", die)
    with pytest.raises(ConnectionError):
        discard(wanted=OF_JFK)
    monkeypatch.undo()
    assert (len(streams.log()), statuses()[3]) == (before, WAITING)
    assert discard(wanted=OF_JFK).discarded == 3
    assert verified()


def test_a_discarded_one_that_is_redriven_or_reported_again_is_no_longer_discarded(
    redis: Redis,
) -> None:
    discard(wanted=OF_JFK)
    # The driver can still redrive it: the author's explicit act.
    send(redis, redriven([3]), dead_lettered([5], minute=4))
    assert (statuses()[3], statuses()[5]) == (REDRIVEN, FAILED_AGAIN)
    send(redis, held(0))
    assert statuses()[3] is PROCESSED
    assert verified()
