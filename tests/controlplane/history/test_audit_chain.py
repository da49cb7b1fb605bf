"""The audit is one chain; each manipulation of its table is found and named."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from msgspec.structs import replace

from arrester.controlplane import actions, audit_chain, embedded, models, signing
from arrester.controlplane.access.roles import Role
from arrester.controlplane.actions.access import logins
from arrester.controlplane.history import audit_export, audit_verification
from arrester.controlplane.history.audit_verification import FaultKind, verify
from arrester.domain.events import ApplicationOpened
from arrester.domain.wire import codec
from tests import services
from tests.controlplane import streams
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")
ENTRIES = 6


@pytest.fixture
def owner(fresh_database: embedded.Urls) -> Iterator[psycopg.Connection]:
    """Return a connection of the owner of the tables, to a chain of some entries."""
    for number in range(1, ENTRIES + 1):
        audit_chain.append("ana", f"entry {number}", "TESTED", "as always")
    with psycopg.connect(fresh_database.migrate_database, autocommit=True) as owner:
        owner.execute("ALTER TABLE account_change DISABLE TRIGGER append_only")
        yield owner


def renumber(owner: psycopg.Connection, *, after: int, by: int) -> None:
    """Move the entries after a number."""
    for sign in (-1, 1):
        # By way of negative numbers: a number is unique at each moment.
        owner.execute(
            "UPDATE account_change SET id = CASE WHEN id > 0 THEN -(id + %s) ELSE -id END"
            " WHERE id > %s OR id < 0",
            [by, after if sign < 0 else 10**9],
        )


def insert_forged(owner: psycopg.Connection, number: int) -> None:
    owner.execute(
        "INSERT INTO account_change (id, at, actor, account, act, detail, key, previous, mac)"
        " SELECT %s, now(), 'eve', 'ana', 'CREATED', 'admin', key, previous, sha256('forged')"
        " FROM account_change ORDER BY id LIMIT 1",
        [number],
    )


def swap(owner: psycopg.Connection) -> None:
    for statement in ("id = -1 WHERE id = 3", "id = 3 WHERE id = 4", "id = 4 WHERE id = -1"):
        owner.execute(f"UPDATE account_change SET {statement}".encode())


def delete(owner: psycopg.Connection, number: int) -> None:
    owner.execute("DELETE FROM account_change WHERE id = %s", [number])


def fault() -> tuple[FaultKind, int]:
    found = verify().fault
    assert found is not None
    return found.kind, found.number


def test_a_changed_field_is_found(owner: psycopg.Connection) -> None:
    owner.execute("CREATE TABLE before AS SELECT * FROM account_change")
    for change in (
        *("actor = 'eve'", "account = 'entry 9'", "act = 'OTHER'", "detail = ''"),
        *("at = at + interval '1 microsecond'", "application = 'flights', sequence = 1"),
        *("previous = sha256('')", "mac = sha256('')"),
        "mac = (SELECT mac FROM account_change WHERE id = 2)",
    ):
        owner.execute(f"UPDATE account_change SET {change} WHERE id = 4".encode())
        assert fault() == (FaultKind.CHANGED, 4)
        assert ("entry 2" in verify().problem) == ("id = 2" in change)
        owner.execute("DELETE FROM account_change")
        owner.execute("INSERT INTO account_change SELECT * FROM before")
        assert not verify().problem


def test_a_deleted_entry_is_found(owner: psycopg.Connection) -> None:
    delete(owner, 3)
    assert fault() == (FaultKind.MISSING, 3)
    renumber(owner, after=3, by=-1)
    assert fault() == (FaultKind.MISSING, 3)


def test_a_deleted_beginning_is_found(owner: psycopg.Connection) -> None:
    delete(owner, 1)
    assert fault() == (FaultKind.MISSING, 1)
    renumber(owner, after=1, by=-1)
    assert fault() == (FaultKind.MISSING, 1)


def test_a_deleted_end_is_found_with_a_known_number(owner: psycopg.Connection) -> None:
    delete(owner, ENTRIES)
    assert not verify().problem
    found = verify(at_least=ENTRIES).fault
    assert found is not None
    assert (found.kind, found.number) == (FaultKind.MISSING, ENTRIES)
    with pytest.raises(CommandError, match="entries 6 to 6 are missing at the end") as raised:
        call_command("audit", "verify", "--at-least", str(ENTRIES))
    assert raised.value.returncode == 1


def test_an_inserted_entry_is_found(owner: psycopg.Connection) -> None:
    insert_forged(owner, ENTRIES + 1)
    assert fault() == (FaultKind.CHANGED, ENTRIES + 1)
    delete(owner, ENTRIES + 1)
    renumber(owner, after=2, by=1)
    insert_forged(owner, 3)
    assert fault() == (FaultKind.INSERTED, 3)
    owner.execute("UPDATE account_change SET mac = NULL WHERE id = 3")
    assert fault() == (FaultKind.INSERTED, 3)


def test_swapped_entries_are_found(owner: psycopg.Connection) -> None:
    swap(owner)
    assert fault() == (FaultKind.REORDERED, 3)
    assert verify().problem == "entry 3 is the former entry 4: entries were reordered"


def test_a_part_that_was_written_again_is_found(owner: psycopg.Connection) -> None:
    """As after a restore of an older dump, with the newest entries put in again."""
    last = owner.execute("SELECT * FROM account_change WHERE id = 6").fetchone()
    assert last is not None
    owner.execute("DELETE FROM account_change WHERE id >= 5")
    audit_chain.append("ana", "entry 5", "TESTED", "otherwise")
    places = ", ".join(["%s"] * len(last))
    owner.execute(f"INSERT INTO account_change VALUES ({places})".encode(), last)
    assert fault() == (FaultKind.MISSING, 6)
    assert "entry 6 does not follow entry 5" in verify().problem


def test_another_key_is_explained(
    owner: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = settings.SECRET_KEY
    monkeypatch.setattr(settings, "SECRET_KEY", "another one " * 4)
    audit_chain.append("ana", "entry 7", "TESTED")
    result = verify()
    assert (result.fault, result.unverified, result.number) == (None, ENTRIES, ENTRIES + 1)
    assert "set ARRESTER_OLD_SECRET_KEYS" in result.problem
    with pytest.raises(CommandError) as raised:
        call_command("audit", "verify")
    assert raised.value.returncode == 2
    with_old = dataclasses.replace(settings.ENVIRONMENT, old_secret_keys=(old,))
    monkeypatch.setattr(settings, "ENVIRONMENT", with_old)
    assert not verify().problem
    # An entry of the old key can still not be forged.
    owner.execute("UPDATE account_change SET actor = 'eve' WHERE id = 2")
    assert fault() == (FaultKind.CHANGED, 2)


def test_earlier_entries_are_taken_in_as_they_are(
    owner: psycopg.Connection, fresh_database: embedded.Urls
) -> None:
    owner.execute("DELETE FROM account_change")
    # Rolled back acts left gaps.
    for number in (2, 5):
        owner.execute(
            "INSERT INTO account_change (id, at, actor, account, act, detail)"
            " VALUES (%s, now(), 'ana', 'bob', 'CREATED', 'viewer')",
            [number],
        )
    assert not verify().problem
    audit_chain.append("ana", "bob", "DEACTIVATED")
    assert (verify().number, verify().problem) == (6, "")
    owner.execute("UPDATE account_change SET actor = 'eve' WHERE id = 2")
    assert fault()[1] == 6


def test_an_act_that_is_an_event_is_linked_to_its_log(owner: psycopg.Connection) -> None:
    actions.open_application(APPLICATION, actor="ana")
    entry = models.AuditEntry.objects.get(sequence=1)
    assert (entry.actor, entry.about, entry.act) == ("ana", APPLICATION, "ApplicationOpened")
    assert audit_chain.link_of(entry).event().type == "ApplicationOpened"
    assert not verify().problem


@pytest.fixture
def superuser(fresh_database: embedded.Urls) -> Iterator[psycopg.Connection]:
    """Return a connection that no trigger stops."""
    url = services.with_name(fresh_database.admin_database, services.DATABASE)
    with psycopg.connect(url, autocommit=True) as superuser:
        superuser.execute("SET session_replication_role = replica")
        yield superuser


def test_a_changed_or_removed_event_is_found(superuser: psycopg.Connection) -> None:
    actions.open_application(APPLICATION, actor="ana")
    [event] = streams.events()
    forged = codec.pack([replace(event, data=ApplicationOpened(actor="eve"))])
    superuser.execute("UPDATE batch SET heads = %s WHERE sequence = 1", [forged.heads])
    assert fault() == (FaultKind.EVENT, 1)
    assert verify().problem == "entry 1: its event flights@1 was changed in the log"
    superuser.execute("DELETE FROM event")
    assert verify().problem == "entry 1: its event flights@1 is missing in the log"
    # As retention does it.
    superuser.execute("DELETE FROM batch")
    assert not verify().problem


def test_concurrent_acts_make_one_chain_and_a_rolled_back_one_leaves_no_gap() -> None:
    def act(number: int) -> None:
        try:
            for _ in range(10):
                with transaction.atomic():
                    audit_chain.append("ana", f"thread {number}", "TESTED")
                    transaction.set_rollback(number == 0)
        finally:
            connection.close()

    threads = [threading.Thread(target=act, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert list(models.AuditEntry.objects.order_by("id").values_list("id", flat=True)) == [
        *range(1, 31)
    ]
    assert (verify().number, verify().problem) == (30, "")


def test_all_acts_of_people_are_in_the_chain() -> None:
    actions.create_account("bob", Role.VIEWER, actor="ana")
    actions.create_token("bob", "t", actor="ana")
    logins.record_wrong_password("bob", "192.0.2.1")
    actions.open_application(APPLICATION, actor="ana")
    actions.add_agent_credential(APPLICATION, actor="ana")
    acts = list(models.AuditEntry.objects.order_by("id").values_list("act", flat=True))
    assert acts == [
        *("CREATED", "TOKEN_CREATED", "WRONG_PASSWORD", "ApplicationOpened"),
        "AGENT_CREDENTIAL_ADDED",
    ]
    output = StringIO()
    call_command("audit", "verify", stdout=output)
    assert output.getvalue().startswith("chain whole up to entry 5, MAC ")


def test_the_application_role_only_adds_entries() -> None:
    audit_chain.append("ana", "bob", "CREATED")
    for statement in ("UPDATE account_change SET actor = 'eve'", "DELETE FROM account_change"):
        with connection.cursor() as cursor, pytest.raises(Exception, match="permission denied"):
            cursor.execute(statement)


def test_the_periodic_check_continues_and_remembers_what_it_has_seen(
    owner: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    now = datetime.now(UTC)
    first = audit_verification.check(now=now)
    mac = bytes(models.AuditEntry.objects.get(id=ENTRIES).mac or b"").hex()
    assert (first.number, first.problem) == (ENTRIES, "")
    assert f"audit: chain whole up to entry {ENTRIES}, MAC {mac}" in caplog.messages
    audit_chain.append("ana", "entry 7", "TESTED")
    # An old entry is read again once a day, new ones at once.
    owner.execute("UPDATE account_change SET actor = 'eve' WHERE id = 2")
    assert audit_verification.check(now=now + timedelta(hours=1)).number == ENTRIES + 1
    later = audit_verification.check(now=now + timedelta(days=1))
    assert later.problem == "entry 2 was changed or inserted"
    assert "audit: the chain is not whole: entry 2 was changed or inserted" in caplog.messages
    owner.execute("UPDATE account_change SET actor = 'ana' WHERE id = 2")
    assert not audit_verification.check(now=now + timedelta(days=2)).problem
    delete(owner, ENTRIES + 1)
    for days in (2, 4):
        found = audit_verification.check(now=now + timedelta(days=days, minutes=1))
        assert found.problem == "entries 7 to 7 are missing at the end"
        assert found.number == ENTRIES + 1


def written(tmp_path: Path, lines: list[bytes]) -> str:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"".join(lines))
    return str(path)


def verified(path: str, *, key: str = "") -> str:
    """Verify a file as on another machine: without the secret key and without the tables."""
    out = StringIO()
    with connection.execute_wrapper(_no_query):
        call_command("audit", "verify", path, "--key", key or signing.public_key(), stdout=out)
    return out.getvalue()


def _no_query(*_: object) -> object:
    raise AssertionError("a file is verified without PostgreSQL")


def test_an_export_verifies_by_itself(owner: psycopg.Connection, tmp_path: Path) -> None:
    middle = models.AuditEntry.objects.get(id=3).at
    lines = list(audit_export.export(since=middle))
    assert "4 entries, 3 to 6, unchanged" in verified(written(tmp_path, lines))
    assert "2 entries, 1 to 2" in verified(
        written(tmp_path, list(audit_export.export(until=middle)))
    )
    other = signing.public_key("another one " * 4)
    forged = lines[1].replace(b"ana", b"eve")
    for part, problem in (
        (lines[:-1], "the signed last line is missing"),
        ([*lines, lines[0]], "line 6 follows the signed line"),
        ([lines[0], lines[2], *lines[3:]], "entry 5 does not follow entry 3"),
        (lines[1:], "the entries differ from what the server signed: it signed 4 entries"),
        ([lines[0], forged, *lines[2:]], "the entries differ from what the server signed"),
        ([*lines[:-1], lines[-1].replace(b'"first":3', b'"first":1')], "signature is not valid"),
        ([b"{}x\n"], "line 1 is no line of an export"),
    ):
        with pytest.raises(CommandError, match=problem):
            verified(written(tmp_path, part))
    with pytest.raises(CommandError, match=f"is of the server {signing.public_key()}"):
        verified(written(tmp_path, lines), key=other)
    owner.execute("UPDATE account_change SET actor = 'eve' WHERE id = 5")
    with pytest.raises(CommandError, match="not whole at the time of the export: entry 5 was ch"):
        verified(written(tmp_path, list(audit_export.export())))


def test_an_export_has_entries_of_earlier_versions(
    owner: psycopg.Connection, tmp_path: Path
) -> None:
    owner.execute("DELETE FROM account_change")
    owner.execute(
        "INSERT INTO account_change (id, at, actor, account, act, detail)"
        " VALUES (4, now(), 'ana', 'bob', 'CREATED', 'viewer')"
    )
    audit_chain.append("ana", "bob", "DEACTIVATED")
    lines = list(audit_export.export())
    assert "2 entries, 4 to 5, unchanged" in verified(written(tmp_path, lines))
