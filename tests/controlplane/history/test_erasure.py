"""Legal erasure: the owner erases one body permanently; nothing else changes."""

from __future__ import annotations

from io import StringIO
from itertools import product

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection
from msgspec.structs import replace
from psycopg import sql
from redis import Redis

from arrester.controlplane import embedded, models, queries, store
from arrester.controlplane.history import erasure, rebuild
from arrester.controlplane.ingest import fold_stream
from arrester.domain.errors import MalformedBatch
from arrester.domain.events import Body, BodyErased, RecordFailed
from arrester.domain.wire import bodies
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, dead_lettered, redriven

pytestmark = pytest.mark.usefixtures("fresh_database")
WHY = {"reason": "a passenger asked for it", "actor": "ana"}


@pytest.fixture
def three_failures(redis: Redis) -> list[Body | None]:
    """Fold a batch of three failed records; return their bodies."""
    streams.send(redis, [histories.failed(number) for number in range(3)])
    fold_stream.fold_stream(APPLICATION)
    return [event.body for event in streams.events()]


def run(sequence: int, **options: str) -> str:
    out = StringIO()
    call_command("erase", APPLICATION, sequence, **WHY | options, stdout=out)
    return out.getvalue()


def test_erasing_a_body_keeps_the_other_bodies_of_its_batch(
    three_failures: list[Body | None],
) -> None:
    assert run(2) == "flights @ 2: body erased; recorded as event 4\n"
    first, second, third, erased = streams.events()
    assert (first.body, third.body) == (three_failures[0], three_failures[2])
    assert second.body == Body(erased=True)
    assert erased.data == BodyErased(sequence=2, **WHY)
    with connection.cursor() as cursor:
        cursor.execute("SELECT bodies FROM batch WHERE bodies IS NOT NULL")
        ((packed,),) = cursor.fetchall()
    found = [bodies.decode_body(bytes(packed), place) for place in range(3)]
    assert found == [three_failures[0], Body(erased=True), three_failures[2]]
    streams.assert_exact()
    before = rebuild.live_rows(APPLICATION)
    rebuild.rebuild(APPLICATION)
    assert rebuild.live_rows(APPLICATION) == before


def test_all_bodies_of_a_dead_letter_are_erased_and_its_copies_listed(redis: Redis) -> None:
    later = dead_lettered([5, 9], minute=1)
    place = replace(later, data=replace(later.data, place="/data/dlq/later", format="json"))
    streams.send(redis, [histories.failed(5), histories.failed(6), dead_lettered([5, 6])])
    fold_stream.fold_stream(APPLICATION)
    streams.send(redis, [redriven([5]), histories.failed(5), place])
    fold_stream.fold_stream(APPLICATION)
    id = models.DeadLetter.objects.get(position=5).id.hex

    def erase(id: str) -> list[str]:
        out = StringIO()
        call_command("erase", APPLICATION, dead_letter=id, **WHY, stdout=out)
        return out.getvalue().splitlines()[:-1]

    copies = [
        f"not erased: {id} in /data/dlq/day=2026-11-20/7 (parquet)",
        f"not erased: {id} in /data/dlq/later (json)",
    ]
    first, last = (f"flights @ {sequence}: body erased; recorded in the log" for sequence in (5, 1))
    assert erase(id) == [first, last, *copies]
    [left] = [each.data for each in streams.events() if each.body and not each.body.erased]
    assert isinstance(left, RecordFailed) and left.position == 6
    assert erase(id) == ["flights: the log has no body of this record", *copies]
    with pytest.raises(CommandError, match="there is no dead letter"):
        erase("00" * 16)
    with pytest.raises(CommandError, match="32 hexadecimal digits"):
        erase("x")
    streams.assert_exact()
    models.DeadLetter.objects.update(position=None)
    with pytest.raises(CommandError, match="one with a position"):
        erase(id)
    with pytest.raises(CommandError, match="either the number"):
        call_command("erase", APPLICATION, **WHY)


def test_erasing_a_missing_body_is_refused(three_failures: list[Body | None]) -> None:
    run(2)
    for sequence, why in ((2, "has no body"), (4, "no event of its batch"), (9, "no event")):
        with pytest.raises(CommandError, match=why):
            run(sequence)
    with pytest.raises(CommandError, match="reason"):
        run(1, reason=" ")
    assert len(streams.log()) == 4


def test_only_the_owner_role_erases(
    three_failures: list[Body | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"):
        erasure.erase(APPLICATION, 1, **WHY)
    monkeypatch.setattr(settings, "MIGRATE_DATABASE_URL", settings.DATABASE_URL)
    with pytest.raises(CommandError, match="must connect as the owner"):
        run(1)
    assert streams.events()[0].body == three_failures[0]
    assert store.read_stream(APPLICATION).sequence == 3


@pytest.mark.parametrize("role", ["owner", "application"])
def test_the_log_is_append_only_after_an_erasure(
    three_failures: list[Body | None], fresh_database: embedded.Urls, role: str
) -> None:
    run(1)
    urls = {"owner": fresh_database.migrate_database, "application": fresh_database.database}
    statements = ["UPDATE {} SET count = 0", "DELETE FROM {}", "TRUNCATE {}"]
    with psycopg.connect(urls[role], autocommit=True) as connected:
        found = connected.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'batch'::regclass"
        )
        tables = [*found.fetchall(), ("batch",)]
        for (table,), statement in product(tables, statements):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connected.execute(sql.SQL(statement).format(sql.Identifier(table)))


def test_an_unreadable_batch_is_not_erased() -> None:
    with pytest.raises(MalformedBatch):
        bodies.without_body(b"what is that?", 0)


def test_an_erased_body_is_not_found_by_its_values(three_failures: list[Body | None]) -> None:
    terms = {"dep_delay:1301"}
    stream = store.read_stream(APPLICATION)
    store.index_records(stream)

    def found(q: str) -> list[int]:
        rows = queries.find_records(queries.RecordFilter(q=q)).rows
        return [each.failure.sequence for each in rows]

    assert found("dep_delay:1301") == [3, 2, 1]
    for sequence in (1, 2, 3):
        run(sequence)
        assert sequence not in found("dep_delay:1301")
    assert list(store.candidate_blocks([stream.id], terms, before=None, most=10)) == []
    # What remains of the record.
    assert found("position:1") == [2]
