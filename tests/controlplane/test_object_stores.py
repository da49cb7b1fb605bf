"""Records of dead letters in an object store: a server of moto, which has the protocol of S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSystem

from arrester.controlplane.dead_letter_records.files import FORMATS, RecordUnavailable, read_row
from arrester.controlplane.env import Environment, InvalidSetting
from tests.controlplane.test_dead_letter_records import ID, rows, write
from tests.histories import APPLICATION

BUCKET = "dead-letters"


@pytest.fixture(scope="module")
def options() -> Iterator[str]:
    """The options of a root in the object store, which has a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "arrester")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
        host, port = server.get_host_and_port()
        options = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        files, _ = FileSystem.from_uri(f"s3://?{options}&allow_bucket_creation=true")
        files.create_dir(BUCKET)
        yield options
    server.stop()


def upload(folder: Path, options: str, to: str) -> None:
    files, root = FileSystem.from_uri(f"s3://{BUCKET}?{options}")
    for file in folder.iterdir():
        with files.open_output_stream(f"{root}/{to}/{file.name}", compression=None) as stream:
            stream.write(file.read_bytes())


def read(place: str, format: str, root: str) -> str:
    environment = Environment.read({"ARRESTER_DEAD_LETTERS_ROOTS": f"/srv/dlq, {root}"})
    roots = environment.dead_letter_roots
    return read_row(place, format, application=APPLICATION, id=ID, roots=roots)


@pytest.mark.parametrize("format", FORMATS)
def test_a_record_is_found_in_an_object_store(options: str, tmp_path: Path, format: str) -> None:
    """Spark writes by the scheme s3a."""
    folder = f"dlq/day=2026-11-27/{format} of 100%"
    write(tmp_path / "1", format, rows())
    upload(tmp_path / "1", options, folder)

    for scheme in ("s3", "s3a"):
        found = read(f"{scheme}://{BUCKET}/{folder}", format, f"s3a://{BUCKET}/dlq/?{options}")
        assert json.loads(found)["n"] == 3


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("s3a://{bucket}/other/1", "is not below a folder in ARRESTER_DEAD_LETTERS_ROOTS"),
        ("s3a://other/dlq/1", "is not below a folder"),
        ("s3a://{bucket}/dlq/../other/1", "is not below a folder"),
        ("s3a://{bucket}/dlq/1?endpoint_override=example.org", "is not below a folder"),
        ("gs://{bucket}/dlq/1", "is not below a folder"),
        ("s3a://{bucket}/dlq/%2e%2e/other/1", "does not exist"),
        ("s3a://{bucket}/dlq%2f..%2fother/1", "is not below a folder"),
        ("s3a://{bucket}/dlq/none", "does not exist"),
        ("s3a://{bucket}/dlq/incomplete", "is not complete"),
        ("s3a://{bucket}/dlq/damaged", "cannot be read"),
    ],
)
def test_a_record_that_may_not_or_cannot_be_read_has_a_reason(
    options: str, tmp_path: Path, place: str, reason: str
) -> None:
    write(tmp_path / "other", "parquet", rows())
    upload(tmp_path / "other", options, "other/1")
    (tmp_path / "other" / "_SUCCESS").unlink()
    upload(tmp_path / "other", options, "dlq/incomplete")
    write(tmp_path / "damaged", "parquet", rows())
    (tmp_path / "damaged" / "part-0.parquet").write_bytes(b"PAR1 damaged PAR1")
    upload(tmp_path / "damaged", options, "dlq/damaged")

    with pytest.raises(RecordUnavailable, match=reason):
        read(place.format(bucket=BUCKET), "parquet", f"s3a://{BUCKET}/dlq?{options}")


def test_a_store_that_does_not_answer_is_a_reason(options: str) -> None:
    root = f"s3a://{BUCKET}/dlq?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    with pytest.raises(RecordUnavailable, match="cannot be read"):
        read(f"s3a://{BUCKET}/dlq/1", "parquet", root)


@pytest.mark.parametrize("root", ["s3a://", "s3a://bucket/a/../b", "hdfs://name/dlq", "/dlq?a=b"])
def test_a_root_is_a_path_or_an_address_in_an_object_store(root: str) -> None:
    with pytest.raises(InvalidSetting, match="absolute paths of folders, or addresses"):
        Environment.read({"ARRESTER_DEAD_LETTERS_ROOTS": root})
