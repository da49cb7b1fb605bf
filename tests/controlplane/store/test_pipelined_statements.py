"""Pipelined statements and copies take effect completely or not at all."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.db import DataError, IntegrityError, InterfaceError, connection, transaction
from msgspec.structs import replace

from arrester.controlplane import store
from arrester.controlplane.store import prepared_statements
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")
NOW = datetime.now(UTC)
PATIENCE_SECONDS = 30


@pytest.fixture
def patience() -> Iterator[None]:
    """End a test that does not return."""

    def end(*_: object) -> None:
        connection.connection.pgconn.finish()
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(PATIENCE_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("answer", ["%s::text", "length(%s::text)"])
def test_a_pipeline_can_exceed_the_socket_buffer(patience: None, answer: str) -> None:
    text = "x" * 2**22
    with transaction.atomic():
        with prepared_statements.pipelined():
            cursors = [prepared_statements.cursor() for _ in range(4)]
            for cursor in cursors:
                cursor.execute(f"SELECT {answer}", [text])
        found = text if answer == "%s::text" else len(text)
        assert [cursor.fetchone() for cursor in cursors] == [(found,)] * 4


def test_a_refused_statement_undoes_the_pipeline_and_is_named() -> None:
    store.open_stream(APPLICATION)
    before = store.read_stream(APPLICATION)
    with pytest.raises(DataError, match="malformed array"), transaction.atomic():
        store.move_cursor(store.lock(APPLICATION), cursor="1-0")
        with prepared_statements.pipelined(), prepared_statements.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.execute("SELECT %s::int4[]", ["no array"])
            cursor.execute("SELECT 2")
    assert store.read_stream(APPLICATION) == before


def test_a_copy_can_exceed_the_socket_buffer(patience: None) -> None:
    failed = [histories.failed(number) for number in range(10_000)]
    streams.append(failed, received_at=NOW)
    assert len(streams.log()) == len(failed)


@pytest.mark.parametrize("rows", ["batches", "events"])
def test_refused_rows_are_undone(rows: str) -> None:
    streams.append([histories.failed(1)], received_at=NOW)
    before = connection.connection
    batch = store.NewBatch(id=uuid4(), events=[histories.failed(2)])
    with (
        pytest.raises(IntegrityError, match="null value in column"),
        streams.locked(APPLICATION) as stream,
    ):
        layout = store.lay_out_rows(stream, [batch], received_at=NOW)
        odd: dict[str, Any] = {rows: [(None,) * len(getattr(layout, rows)[0])]}
        with store.copying(dataclasses.replace(layout, **odd)):
            pass
    streams.append([histories.failed(2)], received_at=NOW)
    assert connection.connection is before
    streams.assert_exact()
    assert len(streams.log()) == 2


def test_a_repeated_batch_is_undone() -> None:
    streams.append([histories.failed(1)], received_at=NOW)
    batch = store.NewBatch(id=uuid4(), events=[histories.failed(2)])
    with pytest.raises(IntegrityError), streams.locked(APPLICATION) as stream:
        store.append(replace(stream, sequence=0), [batch], received_at=NOW)
    streams.assert_exact()
    assert len(streams.log()) == 1


def test_a_fold_that_fails_during_a_copy_is_undone() -> None:
    store.open_stream(APPLICATION)
    batch = store.NewBatch(id=uuid4(), events=[histories.failed(1)])
    with (
        pytest.raises(ArithmeticError),
        streams.locked(APPLICATION) as stream,
        store.copying(store.lay_out_rows(stream, [batch], received_at=NOW)),
    ):
        raise ArithmeticError
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM event")
        assert cursor.fetchone() == (0,)
    streams.append([histories.failed(1)], received_at=NOW)
    streams.assert_exact()


def test_copying_requires_a_transaction() -> None:
    store.open_stream(APPLICATION)
    batch = store.NewBatch(id=uuid4(), events=[histories.failed(1)])
    layout = store.lay_out_rows(store.read_stream(APPLICATION), [batch], received_at=NOW)
    with pytest.raises(InterfaceError, match="lock"), store.copying(layout):
        pass
    assert streams.log() == []
