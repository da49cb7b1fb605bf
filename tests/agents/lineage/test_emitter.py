"""When run events are sent, and the names of datasets."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from pyspark.sql.types import StructType

from arrester.agents.definition.sinks import Sink
from arrester.agents.definition.stores.files import Files
from arrester.agents.definition.stores.jdbc_store import JdbcStore
from arrester.agents.definition.stores.kafka_topic import KafkaTopic
from arrester.agents.lineage.datasets import outputs_of
from arrester.agents.lineage.emitter import MOST_WAITING, Emitter, is_wanted
from arrester.agents.lineage.reports import Report


def jdbc(table: str, url: str) -> JdbcStore:
    return JdbcStore(table=table, url=url, schema=StructType())


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (Files(path="/data/out/"), ("file", "/data/out")),
        (Files(path="file:///data/out"), ("file", "/data/out")),
        (Files(path="s3a://lake/flights/out"), ("s3://lake", "flights/out")),
        (Files(path="hdfs://name:8020/out"), ("hdfs://name:8020", "/out")),
        (
            Files(path="abfss://lake@account.dfs.core.windows.net/out"),
            ("abfss://lake@account.dfs.core.windows.net", "/out"),
        ),
        (
            KafkaTopic(topic="late", options={"kafka.bootstrap.servers": "one:9092,two:9092"}),
            ("kafka://one:9092", "late"),
        ),
        (
            jdbc("flights", "jdbc:postgresql://db/air?user=ana&password=secret"),
            ("postgres://db:5432", "air.public.flights"),
        ),
        (
            jdbc('"ops"."late"', "jdbc:postgresql://db:6432/air"),
            ("postgres://db:6432", "air.ops.late"),
        ),
        (jdbc("flights", "jdbc:postgresql:air"), None),
        (lambda df, number: None, None),
    ],
)
def test_the_names_of_datasets_are_those_of_openlineage(
    store: Any, expected: tuple[str, str] | None
) -> None:
    pipeline: Any = SimpleNamespace(sink=Sink(function=store))
    assert outputs_of(pipeline) == ([] if expected is None else [expected])


def test_events_are_sent_only_if_a_transport_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_wanted({"HOME": str(tmp_path)})
    assert is_wanted({"OPENLINEAGE_URL": "http://marquez:5000"})
    assert is_wanted({"OPENLINEAGE__TRANSPORT__TYPE": "file"})
    assert not is_wanted({"OPENLINEAGE_URL": "http://m:5000", "OPENLINEAGE_DISABLED": "true"})
    (tmp_path / ".openlineage").mkdir()
    (tmp_path / ".openlineage" / "openlineage.yml").write_text("transport: {type: noop}")
    assert is_wanted({"HOME": str(tmp_path)})


@pytest.mark.timeout(120)
def test_a_server_that_does_not_answer_blocks_nothing() -> None:
    report = Report(
        state="START",
        at=datetime(2026, 11, 30, tzinfo=UTC),
        run=UUID(int=7),
        namespace="default",
        job="flights.lines",
        streaming=True,
        spark="4.1.0",
        parent=None,
        inputs=[],
        outputs=[],
        results=[],
    )
    # The client adds variables of its own to the environment of its process.
    with socket.create_server(("127.0.0.1", 0)) as silent, mock.patch.dict(os.environ):
        os.environ["OPENLINEAGE_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        sending = Emitter()
        for _ in range(2 * MOST_WAITING):
            sending.emit(report)
        sending.close()
