"""The index of dead letters: each once, with exact totals, and the same after a rebuild."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Sum
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import models, store
from arrester.controlplane.history import retention
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.views import dead_letters
from arrester.controlplane.views.redrive_progress import redrive_totals
from arrester.domain.events import (
    DeadLetterIds,
    Event,
    RecordsDeadLettered,
)
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE, JFK, dead_lettered, held, redriven

WAITING, REDRIVEN, PROCESSED, FAILED_AGAIN, DISCARDED = models.DeadLetterStatus

pytestmark = pytest.mark.usefixtures("fresh_database")


def send(redis: Redis, *events: Event) -> None:
    streams.send(redis, events)
    fold_stream.fold_stream(APPLICATION)


def totals() -> dict[tuple[str, str | None], int]:
    rows = models.DeadLetterTotal.objects.all()
    return {(row.task.hex, row.fingerprint): row.count for row in rows}


def positions() -> list[int | None]:
    rows = models.DeadLetter.objects.order_by("occurred_at", "sequence", "number")
    return [row.position for row in rows]


def rebuild(*words: str) -> str:
    out = StringIO()
    call_command("rebuild", *words, stdout=out)
    return out.getvalue()


def test_a_fold_adds_each_dead_letter_with_its_cause(redis: Redis) -> None:
    send(redis, *histories.started(), dead_lettered([3, 5, 8], causes=[1, 0, 1]))
    assert positions() == [3, 5, 8]
    row = models.DeadLetter.objects.get(position=5)
    assert (row.sequence, row.number, row.size, row.cause) == (3, 1, 100, models.NO_CAUSE)
    assert row.task == UUID(hex=JFK.digest)
    assert totals() == {(JFK.digest, FAILURE.fingerprint): 2, (JFK.digest, None): 1}


def test_a_second_delivery_changes_nothing(redis: Redis) -> None:
    events = [*histories.started(), dead_lettered([3, 5])]
    batch = streams.send(redis, events)
    streams.send(redis, events, batch=batch)
    fold_stream.fold_stream(APPLICATION)
    assert positions() == [3, 5]
    assert totals() == {(JFK.digest, FAILURE.fingerprint): 2}


def test_the_same_record_again_is_one_row_with_the_newest_event(redis: Redis) -> None:
    send(redis, *histories.started(), dead_lettered([3, 5]))
    other = dead_lettered([5, 9], fingerprints=["1-other"], minute=2)
    send(redis, other, dead_lettered([9, 9], minute=3))
    assert positions() == [3, 5, 9]
    assert models.DeadLetter.objects.get(position=5).sequence == 4
    assert totals() == {(JFK.digest, FAILURE.fingerprint): 2, (JFK.digest, "1-other"): 1}
    send(redis, dead_lettered([5], minute=4))
    assert totals() == {(JFK.digest, FAILURE.fingerprint): 3}


def test_many_are_written_in_several_statements(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "ROWS_PER_STATEMENT", 4)
    send(redis, *histories.started(), dead_lettered(range(10)), dead_lettered(range(8, 12)))
    assert sorted(map(str, positions())) == sorted(map(str, range(12)))
    assert totals() == {(JFK.digest, FAILURE.fingerprint): 12}
    assert rebuild("--verify") == "flights: 0 rows differ\n"


@pytest.mark.parametrize("rows", [1, 2, 3, 5_000])
def test_a_cause_has_its_name_wherever_a_statement_ends(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(dead_letters, "ROWS_PER_STATEMENT", rows)
    several = dead_lettered([1, 2, 3, 4], fingerprints=["1-a", "1-b"], causes=[1, 1, 1, 2])
    again = dead_lettered([4, 5], fingerprints=["1-c"], minute=1)
    send(redis, *histories.started(), several, again)
    assert totals() == {(JFK.digest, "1-a"): 3, (JFK.digest, "1-c"): 2}
    assert rebuild("--verify") == "flights: 0 rows differ\n"


def test_a_rebuild_derives_the_index_again(redis: Redis) -> None:
    data = dead_lettered([1]).data
    assert isinstance(data, RecordsDeadLettered)
    older = histories.event(replace(data, records=None, count=2, ids=("0a" * 16, "0b" * 16)))
    send(redis, *histories.started(), dead_lettered([3, 5]), older, dead_lettered([5], minute=1))
    before, counted = list(models.DeadLetter.objects.values()), totals()
    assert len(before) == 4

    models.DeadLetter.objects.filter(position=3).update(size=1)
    models.DeadLetter.objects.filter(position=5).delete()
    models.DeadLetterTotal.objects.filter(fingerprint=None).update(count=9)
    with pytest.raises(CommandError, match="3 rows differ"):
        rebuild("--verify")
    assert models.DeadLetter.objects.get(position=3).size == 1

    rebuild()
    assert sorted(map(str, models.DeadLetter.objects.values())) == sorted(map(str, before))
    assert totals() == counted
    assert rebuild("--verify") == "flights: 0 rows differ\n"


def test_retention_deletes_the_rows_of_dropped_events() -> None:
    now = datetime.now(UTC)
    store.ensure_partitions((now - timedelta(days=10)).date(), days=11)
    old, new = now - timedelta(days=10), now - timedelta(days=1)
    streams.append([*histories.started(), dead_lettered([3, 5])], received_at=old)
    streams.append([dead_lettered([5, 9], minute=1, key="JFK")], received_at=new)
    assert positions() == [3, 5, 9]
    retention.retain(days=5, replay_days=5, now=now)
    assert positions() == [5, 9]
    total = models.DeadLetterTotal.objects.aggregate(total=Sum("count"))
    assert total == {"total": 2}
    assert rebuild("--verify") == "flights: 0 rows differ\n"


def statuses() -> dict[int | None, models.DeadLetterStatus]:
    rows = models.DeadLetter.objects.order_by("position")
    return {row.position: models.DeadLetterStatus(row.status) for row in rows}


def waiting() -> int:
    return sum(models.DeadLetterTotal.objects.values_list("waiting", flat=True))


@pytest.mark.parametrize("is_one_fold", [False, True])
def test_a_redriven_dead_letter_is_processed_or_waits_again(
    redis: Redis, *, is_one_fold: bool
) -> None:
    steps = [
        [*histories.started(), dead_lettered([3, 5, 8]), dead_lettered([3], key="EWR")],
        [redriven([3, 5]), held(2)],
        # 5 has failed again; no event reports that 3 has been written.
        [dead_lettered([5], minute=1), held(0, key="EWR"), held(0)],
    ]
    if is_one_fold:
        send(redis, *steps[0], *steps[1], *steps[2])
    else:
        send(redis, *steps[0])
        assert (set(statuses().values()), waiting()) == ({WAITING}, 4)
        send(redis, *steps[1])
        rows = models.DeadLetter.objects.filter(task=UUID(hex=JFK.digest))
        assert {row.position: row.status for row in rows} == {3: REDRIVEN, 5: REDRIVEN, 8: WAITING}
        assert waiting() == 2
        send(redis, *steps[2])
    rows = models.DeadLetter.objects.filter(task=UUID(hex=JFK.digest))
    assert {row.position: row.status for row in rows} == {3: PROCESSED, 5: FAILED_AGAIN, 8: WAITING}
    assert {row.position: (row.first_sequence, row.redrives) for row in rows} == {
        3: (3, 1),
        5: (3, 1),
        8: (3, 0),
    }
    assert waiting() == 3
    assert rebuild("--verify") == "flights: 0 rows differ\n"


@pytest.mark.parametrize("is_one_fold", [False, True])
def test_a_redriven_record_is_processed_while_its_task_holds_others(
    redis: Redis, *, is_one_fold: bool
) -> None:
    begin = [
        *histories.started(),
        dead_lettered([3, 5, 8, 9]),
        dead_lettered([4], key="EWR"),
        redriven([4], key="EWR"),
        redriven([3, 5, 8]),
    ]
    # A chunk of live records, one of redriven records, and the same once more.
    chunks = [held(9), held(7, processed_until=5), held(7, processed_until=5)]
    for some in [[*begin, *chunks]] if is_one_fold else [begin, *([each] for each in chunks)]:
        send(redis, *some)
    assert statuses() == {3: PROCESSED, 4: REDRIVEN, 5: PROCESSED, 8: REDRIVEN, 9: WAITING}
    send(redis, dead_lettered([8], minute=1), held(2, processed_until=2**63 - 1))
    assert statuses() == {3: PROCESSED, 4: REDRIVEN, 5: PROCESSED, 8: FAILED_AGAIN, 9: WAITING}
    assert waiting() == 2
    assert rebuild("--verify") == "flights: 0 rows differ\n"


def test_the_redrive_that_took_a_dead_letter_last_has_it(redis: Redis) -> None:
    first, second = UUID(int=1), UUID(int=2)
    send(
        redis, *histories.started(), dead_lettered([3, 5, 8, 9]), redriven([3, 5, 8], redrive=first)
    )
    send(redis, held(0), dead_lettered([5, 8], minute=1), redriven([5], redrive=second))
    none = dict.fromkeys(models.DeadLetterStatus, 0)
    assert redrive_totals(APPLICATION, first) == none | {PROCESSED: 1, FAILED_AGAIN: 1}
    assert redrive_totals(APPLICATION, second) == none | {REDRIVEN: 1}
    assert models.DeadLetter.objects.get(position=5).redrives == 2
    # The driver has redriven it once more.
    send(redis, redriven([5]))
    assert redrive_totals(APPLICATION, second) == none
    assert rebuild("--verify") == "flights: 0 rows differ\n"


def test_a_rebuild_keeps_what_dropped_events_reported() -> None:
    now = datetime.now(UTC)
    store.ensure_partitions((now - timedelta(days=10)).date(), days=11)
    old, new = now - timedelta(days=10), now - timedelta(days=1)
    redrive = redriven([3, 5], redrive=UUID(int=1))
    streams.append([*histories.started(), dead_lettered([3, 5]), redrive], received_at=old)
    streams.append([dead_lettered([5], minute=1)], received_at=new)
    retention.retain(days=5, replay_days=5, now=now)
    streams.append([dead_lettered([7], minute=1)], received_at=new)
    models.DeadLetter.objects.filter(position=7).update(first_sequence=1, status=PROCESSED)
    with pytest.raises(CommandError, match="1 row"):
        rebuild("--verify")
    rebuild()
    assert statuses() == {5: FAILED_AGAIN, 7: WAITING}
    row = models.DeadLetter.objects.get(position=5)
    assert (row.first_sequence, row.redrive, row.redrives) == (3, UUID(int=1), 1)
    assert rebuild("--verify") == "flights: 0 rows differ\n"


def test_an_unknown_dead_letter_and_a_later_one_are_not_redriven(redis: Redis) -> None:
    send(redis, *histories.started(), redriven([3, 99]), dead_lettered([3]), held(0))
    assert statuses() == {3: WAITING}
    assert (waiting(), sum(totals().values())) == (1, 1)


def test_invalid_ids_are_quarantined(redis: Redis) -> None:
    event = redriven([3])
    wrong = replace(event.data, records=DeadLetterIds(ids=b"short"))
    send(redis, *histories.started(), replace(event, data=wrong), dead_lettered([3]))
    assert statuses() == {3: WAITING}
    [entry] = models.Quarantine.objects.all()
    assert "redriven dead letters: 5 bytes of ids for 1 dead letters" in entry.reason
