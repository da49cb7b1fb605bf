"""Records of dead letters from files: only permitted ones, masked; else a reason."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from django.conf import LazySettings
from msgspec.structs import replace
from pyarrow import orc, parquet
from redis import Redis

from arrester.controlplane import dead_letter_records, queries, tasks
from arrester.controlplane.celery_workers import HOUSEKEEPING
from arrester.controlplane.dead_letter_records import files, requests
from arrester.controlplane.dead_letter_records.files import RecordUnavailable, read_row
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.redis import redis_client
from arrester.domain.events import Event, RecordsDeadLettered
from arrester.domain.identity import redis_keys
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, dead_lettered
from tests.patience import wait_until

ROW = {
    "flight": "B6 1",
    "PassWord": "x",
    "more": {"card_number": 7, "api-key": 1, "phone": 5, "seat": None},
}
ID = "0a" * 16


def write(folder: Path, format: str, rows: list[dict[str, Any]]) -> str:
    """Write a complete folder, in two row groups or files as Spark does; return its path."""
    folder.mkdir(parents=True)
    table = arrow.Table.from_pylist(rows)
    if format == "parquet":
        parquet.write_table(table, folder / "part-0.parquet", row_group_size=2)
    elif format == "orc":
        orc.write_table(table, folder / "part-0.orc")
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        with arrow.output_stream(str(folder / "part-0.json.gz"), compression="gzip") as stream:
            stream.write(text.encode())
    (folder / "_SUCCESS").touch()
    return str(folder)


def rows(*, application: str = APPLICATION) -> list[dict[str, Any]]:
    """Return rows of dead letters; the last one has the wanted id."""
    ids = ["00" * 16, "01" * 16, "02" * 16, ID]
    return [
        {"id": id, "application": application, "row": json.dumps(ROW | {"n": n})}
        for n, id in enumerate(ids)
    ]


def read(place: str, format: str, *roots: Path | str) -> str:
    return read_row(place, format, application=APPLICATION, id=ID, roots=[*map(str, roots)])


@pytest.mark.parametrize("format", files.FORMATS)
def test_a_record_is_found_in_files_of_each_format(tmp_path: Path, format: str) -> None:
    place = write(tmp_path / "dlq" / "day=2026-11-20" / "1", format, rows())
    for form in (place, f"file:{place}", f"file://{place}"):
        assert json.loads(read(form, format, "/srv/other", tmp_path / "dlq"))["n"] == 3


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("/etc", "is not below a folder in ARRESTER_DEAD_LETTERS_ROOTS"),
        ("{root}", "is not below a folder"),
        ("{root}x/1", "is not below a folder"),
        ("{root}/../other/1", "is not below a folder"),
        ("{root}/1/", "is not below a folder"),
        ("{root}/link", "has a link"),
        ("{root}/none", "does not exist on the server"),
        ("{root}/incomplete", "is not complete"),
        ("{root}/others", "No file in {root}/others has a dead letter of flights with this id"),
        ("{root}/damaged", "cannot be read"),
        ("s3a://bucket/dlq/1", "is not below a folder"),
        ("hdfs://name/dlq/1", "not hdfs://name/dlq/1"),
        ("topic flights", "local and mounted folders, and object stores"),
    ],
)
def test_a_record_that_may_not_or_cannot_be_read_has_a_reason(
    tmp_path: Path, place: str, reason: str
) -> None:
    root = tmp_path / "dlq"
    write(root / "others", "parquet", rows(application="orders"))
    write(tmp_path / "other" / "1", "parquet", rows())
    (root / "link").symlink_to(tmp_path / "other" / "1")
    (root / "incomplete").mkdir()
    write(root / "damaged", "parquet", [])
    (root / "damaged" / "part-0.parquet").write_bytes(b"PAR1 damaged PAR1")
    (root / "others" / "part-1.parquet").symlink_to(tmp_path / "other" / "1" / "part-0.parquet")
    with pytest.raises(RecordUnavailable) as raised:
        read(place.format(root=root), "parquet", root)
    assert reason.format(root=root) in str(raised.value)


def test_without_roots_and_for_other_formats_nothing_is_read(tmp_path: Path) -> None:
    place = write(tmp_path / "1", "parquet", rows())
    with pytest.raises(RecordUnavailable, match="Set ARRESTER_DEAD_LETTERS_ROOTS"):
        read(place, "parquet")
    with pytest.raises(RecordUnavailable, match="parquet, orc, json, not csv"):
        read(place, "csv", tmp_path)


def test_a_worker_reads_the_record_once_for_all_that_request_it(
    fresh_database: object, redis: Redis, tmp_path: Path, settings: LazySettings
) -> None:
    first, _ = queue(redis, tmp_path, settings)
    assert dead_letter_records.request(first).state is requests.State.PENDING
    assert dead_letter_records.request(first).state is requests.State.PENDING
    assert redis_client.broker().llen(HOUSEKEEPING) == 1

    tasks.read_dead_letter(APPLICATION, first.id)
    record = dead_letter_records.request(first)
    assert record.body is not None and record.state is requests.State.READY
    assert record.body.record == {"flight": "B6 1", "more": {"seat": None}, "n": 0}
    masked = ("PassWord", "more.card_number", "more.api-key", "more.phone")
    assert record.body.redacted == masked
    assert record.body.cut_from is None


def test_a_request_without_an_answer_is_repeated(
    fresh_database: object,
    redis: Redis,
    tmp_path: Path,
    settings: LazySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pending request expires, as after the death of its worker."""
    first, _ = queue(redis, tmp_path, settings)
    monkeypatch.setattr(requests, "PENDING_SECONDS", 1)
    dead_letter_records.request(first)
    wait_until(lambda: redis.exists(redis_keys.dead_letter_record(APPLICATION, first.id)) == 0)
    assert dead_letter_records.request(first).state is requests.State.PENDING
    assert redis_client.broker().llen(HOUSEKEEPING) == 2


def test_a_large_record_is_cut_and_a_missing_one_has_a_reason(
    fresh_database: object,
    redis: Redis,
    tmp_path: Path,
    settings: LazySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = queue(redis, tmp_path, settings)
    monkeypatch.setattr(requests, "MAX_BYTES", 9)
    tasks.read_dead_letter(APPLICATION, first.id)
    body = dead_letter_records.request(first).body
    assert body is not None and body.record is not None
    assert body.record["flight"] == "B6 …[cut]"
    assert body.cut_from == len(json.dumps(ROW | {"n": 0}))
    tasks.read_dead_letter(APPLICATION, second.id)
    missing = dead_letter_records.request(second)
    assert missing.state is requests.State.FAILED and "No file in" in missing.reason


def queue(redis: Redis, folder: Path, settings: LazySettings) -> list[queries.DeadLetter]:
    """Have two dead letters, of which a file has the first; return them."""
    event = reported(folder / "1")
    example = histories.failed(9)
    assert example.body is not None
    example = replace(example, body=replace(example.body, redacted=("more.phone",)))
    streams.send(redis, [*histories.started(), example, event])
    fold_stream.fold_stream(APPLICATION)
    found = list(reversed(queries.dead_letters(queries.DeadLetterFilter()).rows))
    write(folder / "1", "parquet", [rows()[0] | {"id": found[0].id}])
    settings.ENVIRONMENT = dataclasses.replace(
        settings.ENVIRONMENT, dead_letter_roots=[str(folder)], dead_letter_redact=["card_*"]
    )
    return found


def reported(folder: Path) -> Event:
    event = dead_lettered([3, 5])
    assert isinstance(event.data, RecordsDeadLettered)
    return replace(event, data=replace(event.data, place=str(folder)))
