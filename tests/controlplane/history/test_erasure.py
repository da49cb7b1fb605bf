"""Legal erasure: the owner erases one body permanently; nothing else changes."""

from __future__ import annotations

from io import StringIO
from itertools import product

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection
from psycopg import sql
from redis import Redis

from arrester.controlplane import embedded, store
from arrester.controlplane.domain.errors import MalformedBatch
from arrester.controlplane.domain.events import Body, BodyErased
from arrester.controlplane.domain.wire import bodies
from arrester.controlplane.history import erasure, rebuild
from arrester.controlplane.ingest import drain
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")
WHY = {"reason": "a passenger asked for it", "actor": "ana"}


@pytest.fixture
def three_failures(redis: Redis) -> list[Body | None]:
    """Fold a batch of three failed records; return their bodies."""
    streams.send(redis, [histories.failed(number) for number in range(3)])
    drain.drain(APPLICATION)
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
