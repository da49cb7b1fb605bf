"""Framed Avro records: evolved schemas, every kind of bad value, and a registry that goes away."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.definition.pipeline import Pipeline, PipelineInvalid
from arrester.agents.handlers import CONTINUE, PAUSE, LogAndContinue, LogAndFail
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.schema_registry.errors import LogicalTypeMismatch, UnknownSchemaId
from arrester.agents.schema_registry.registry import SchemaFolder, SchemaRegistry
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed, ResumeHow
from tests import schema_registry_process
from tests.agents.kafka_records import kafka_source
from tests.agents.pipeline_bench import Bench, levels_of, read_sink, sink_to
from tests.agents.test_examples_of_the_docs import examples
from tests.patience import wait_until
from tests.schema_registry_process import Registry, spark_avro

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Fields = list[dict[str, Any]]
ORIGIN: Fields = [{"name": "origin", "type": "string"}]
DELAY = [*ORIGIN, {"name": "delay", "type": "int", "default": 0}]
GATE = [*DELAY, {"name": "gate", "type": ["null", "string"], "default": None}]
INCOMPATIBLE: Fields = [{"name": "origin", "type": "int"}]


def schema(fields: Fields) -> str:
    return json.dumps({"type": "record", "name": "Flight", "fields": fields})


def framed(id: int, fields: Fields, **record: Any) -> bytes:
    """Return a record written by fastavro, in the frame of a registry."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(schema(fields))), record)
    return b"\0" + id.to_bytes(4, "big") + body.getvalue()


@pytest.fixture(autouse=True)
def avro() -> None:
    if not spark_avro():
        pytest.skip("tests/jars names no spark-avro for this Spark")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two schemas."""
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "README.avsc").write_text("no schema")
    (folder / "1.avsc").write_text(schema(ORIGIN))
    (folder / "12.avsc").write_text(schema(DELAY))
    return folder


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with schema_registry_process.running() as registry:
        yield registry


@pytest.fixture
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def defined(bench: Bench) -> PipelineBuilder:
    """Return a pipeline whose column `framed` has the bytes of hexadecimal values."""
    return bench.define().columns("bytes", framed=F.unhex("value"))


def add(bench: Bench, *values: bytes | None, first: int = 1, task: str = "JFK") -> None:
    rows = [
        (task, first + n, None if each is None else each.hex()) for n, each in enumerate(values)
    ]
    bench.add(*rows)  # type: ignore[arg-type]


def finished(bench: Bench, builder: PipelineBuilder, *, atomic: bool = True) -> Pipeline:
    return builder.write(sink_to(bench.folder / "out"), atomic=atomic)


def flights(bench: Bench) -> dict[int, Any]:
    """Return the parsed records in the sink by position."""
    return {row["position"]: row.get("flight") for _, row in read_sink(bench.folder / "out")}


def failed(bench: Bench) -> dict[int | None, tuple[str, str]]:
    return {
        each.position: (each.failure.exception_class, each.failure.message)
        for each in bench.outbox.of(RecordFailed)
    }


def test_a_record_after_a_damaged_one_has_its_own_values(bench: Bench, folder: Path) -> None:
    good = [framed(12, DELAY, origin=f"A{n}", delay=n) for n in range(4)]
    bad = framed(12, DELAY, origin="a longer name", delay=7)[:-3]
    add(bench, good[0], bad, good[1], bad, bad, good[2], good[3])
    avro = SchemaFolder(folder).avro("framed", schema=schema(DELAY))
    builder = defined(bench).deserialize("flight", avro, on_error=LogAndContinue())

    bench.start(finished(bench, builder))
    bench.wait_for_input()

    right = {1: 0, 3: 1, 6: 2, 7: 3}
    assert flights(bench) == {at: {"origin": f"A{n}", "delay": n} for at, n in right.items()}


def test_versions_are_resolved_and_each_bad_value_has_its_class(bench: Bench, folder: Path) -> None:
    (folder / "3.avsc").write_text(schema(INCOMPATIBLE))
    values = [
        framed(1, ORIGIN, origin="EWR"),
        framed(12, DELAY, origin="LGA", delay=7),
        None,
        framed(3, INCOMPATIBLE, origin=5),
        framed(7, ORIGIN, origin="JFK"),
        b'{"origin": "JFK"}',
        b"\0\0\0",
        b"",
        framed(12, DELAY, origin="LGA", delay=7)[:-2],
    ]
    add(bench, *values)
    avro = SchemaFolder(folder).avro("framed", schema=schema(DELAY))
    bench.start(
        finished(bench, defined(bench).deserialize("flight", avro, on_error=LogAndContinue()))
    )
    bench.wait_for_input()
    bench.stop()
    assert flights(bench) == {
        1: {"origin": "EWR", "delay": 0},
        2: {"origin": "LGA", "delay": 7},
        3: None,
    }
    failures = failed(bench)
    assert {at: name.rpartition(".")[2] for at, (name, _) in failures.items()} == {
        4: "SparkException",
        5: "UnknownSchemaId",
        6: "InvalidFrame",
        7: "InvalidFrame",
        8: "InvalidFrame",
        9: "SparkException",
    }
    assert failures[5][1] == f"the schema id 7 is unknown: the folder {folder} does not have it"
    assert failures[6][1].endswith("this has 17 bytes and begins with 7B226F7269")
    assert failures[7][1].endswith("this has 3 bytes and begins with 000000")
    assert len(bench.dead_letters()) == 6


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def test_logical_types_are_read_as_written_or_their_record_fails(
    bench: Bench, folder: Path
) -> None:
    def version(id: int, *types: Any) -> Fields:
        fields = [
            {"name": "at", "type": types[0]},
            {"name": "legs", "type": {"type": "array", "items": ["null", types[1]]}},
        ]
        (folder / f"{id}.avsc").write_text(schema(fields))
        return fields

    def decimal(precision: int, scale: int) -> dict[str, Any]:
        return logical("bytes", "decimal", precision=precision, scale=scale)

    millis, micros = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
    at, price = datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.25")
    scaled = version(20, millis, decimal(10, 4))
    older = version(21, millis, decimal(8, 2))
    untyped = version(22, "long", decimal(10, 2))
    newest = version(30, micros, decimal(10, 2))
    good: dict[str, Any] = {"at": at, "legs": [None, price]}
    values = [
        framed(20, scaled, **good),
        framed(21, older, **good),
        framed(22, untyped, **good | {"at": 1_767_312_000}),
        framed(30, newest, **good),
    ]
    add(bench, *values)
    avro = SchemaFolder(folder).avro("framed")
    parsed = defined(bench).deserialize(
        "flight", avro, on={LogicalTypeMismatch: CONTINUE}, on_error=LogAndFail()
    )
    seconds = F.col("flight.at").cast("double")
    flight = F.struct(seconds.alias("at"), F.col("flight.legs").cast("string").alias("legs"))
    bench.start(finished(bench, parsed.columns("texts", flight=flight)))
    bench.wait_for_input()
    bench.stop()
    assert bench.ends == []
    expected = {"at": at.timestamp(), "legs": "[null, 1.25]"}
    assert flights(bench) == {2: expected, 4: expected}
    assert {at: (name.rpartition(".")[2], text) for at, (name, text) in failed(bench).items()} == {
        1: (
            "LogicalTypeMismatch",
            "legs.element was written as decimal(10,4), and is read as decimal(10,2)",
        ),
        3: ("LogicalTypeMismatch", "at was written as long, and is read as timestamp-micros"),
    }


def test_plain_avro_is_read_by_the_logical_types_of_its_writer(bench: Bench) -> None:
    millis, micros = (
        schema([{"name": "at", "type": logical("long", f"timestamp-{unit}")}])
        for unit in ("millis", "micros")
    )
    at = datetime(2026, 1, 2, tzinfo=UTC)
    add(bench, framed(1, json.loads(millis)["fields"], at=at)[5:])
    plain = from_avro("framed", millis, {"avroSchema": micros})
    parsed = defined(bench).deserialize("flight", plain, on_error=LogAndFail())
    bench.start(finished(bench, parsed.columns("s", flight=F.col("flight.at").cast("double"))))
    bench.wait_for_input()
    bench.stop()
    assert flights(bench) == {1: at.timestamp()}

    untyped = schema([{"name": "at", "type": "long"}])
    with pytest.raises(InvalidValue, match="at was written as long, and is read as") as raised:
        defined(bench).deserialize("flight", from_avro("framed", untyped, {"avroSchema": micros}))
    assert "\n" not in str(raised.value)


def test_timestamps_in_nanoseconds_are_refused_in_one_line(bench: Bench, folder: Path) -> None:
    """Spark before 4.3 reads them as numbers."""
    has_nanoseconds = bench.spark.version >= "4.3"
    nanos = schema([{"name": "at", "type": ["null", logical("long", "timestamp-nanos")]}])
    number = schema([{"name": "at", "type": ["null", "long"]}])
    (folder / "30.avsc").write_text(nanos)
    as_number = SchemaFolder(folder).avro("framed", schema=number)
    at = defined(bench).deserialize("flight", as_number).shape.schema["flight"].dataType
    assert at.simpleString() == "struct<at:bigint>"
    for given in (from_avro("framed", nanos), SchemaFolder(folder).avro("framed")):
        if not has_nanoseconds:
            defined(bench).deserialize("flight", given)
            continue
        with pytest.raises(
            PipelineInvalid, match=r"^deserialize 'flight': PySpark has no"
        ) as raised:
            defined(bench).deserialize("flight", given)
        assert "a long without timestamp-nanos" in str(raised.value)
        assert "\n" not in str(raised.value)


def test_plain_avro_is_guarded_and_no_mode_hides_a_bad_record(bench: Bench) -> None:
    add(bench, framed(1, ORIGIN, origin="EWR")[5:], b"\x80", None)
    plain = from_avro("framed", schema(ORIGIN))
    builder = defined(bench).deserialize("flight", plain, on_error=LogAndContinue())
    bench.start(finished(bench, builder))
    bench.wait_for_input()
    bench.stop()
    assert flights(bench) == {1: {"origin": "EWR"}, 3: None}
    [(_, message)] = failed(bench).values()
    assert list(failed(bench)) == [2]
    # The reason comes first, without Spark's advice to use the mode that is refused.
    assert message.startswith("java.io.EOFException") and "PERMISSIVE" not in message
    permissive = from_avro("framed", schema(ORIGIN), {"mode": "PERMISSIVE"})
    with pytest.raises(InvalidValue, match="mode of from_avro: 'PERMISSIVE' is not allowed"):
        defined(bench).deserialize("flight", permissive)


def test_a_schema_that_is_added_later_serves_new_and_held_records(
    bench: Bench, folder: Path
) -> None:
    add(bench, framed(12, DELAY, origin="EWR", delay=1))
    avro = SchemaFolder(folder).avro("framed")
    builder = defined(bench).deserialize("flight", avro, on={UnknownSchemaId: PAUSE})
    thread = bench.start(finished(bench, builder))
    add(bench, framed(13, GATE, origin="LGA", delay=2, gate="B7"), first=2)
    bench.wait_for_input()
    [task] = thread.tasks()
    assert (task.id.key, task.held) == ("JFK", 1)
    (folder / "13.avsc").write_text(schema(GATE))
    add(bench, framed(13, GATE, origin="BOS", delay=3, gate=None), task="BOS", first=3)
    bench.wait_for_input()
    # The result keeps the schema of the start.
    assert flights(bench) == {1: {"origin": "EWR", "delay": 1}, 3: {"origin": "BOS", "delay": 3}}
    assert thread.apply(TaskCommand("JFK", how=ResumeHow.RETRY)).applied
    wait_until(lambda: 2 in flights(bench), what="the held record")
    assert flights(bench)[2] == {"origin": "LGA", "delay": 2}
    assert len(bench.outbox.of(RecordFailed)) == 1


def test_a_registry_is_asked_before_each_micro_batch(
    bench: Bench, registry: Registry, client: SchemaRegistryClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Values come from Confluent's own serializer, which registers each version before it sends."""
    caplog.set_level("INFO", "arrester")
    place = SerializationContext("flights", MessageField.VALUE)

    def written(fields: Fields, **record: Any) -> bytes:
        value = AvroSerializer(client, schema(fields))(record, place)
        assert isinstance(value, bytes)
        return value

    add(bench, written(DELAY, origin="EWR", delay=1))
    source = SchemaRegistry({"url": registry.url, "timeout": 3})
    avro = source.avro("framed", subject="flights-value")
    builder = defined(bench).deserialize("flight", avro, on_error=LogAndFail())
    retries: dict[str, Any] = {"errors_retry_timeout": -1, "errors_retry_delay_max_ms": 300}
    bench.start(finished(bench, builder), **retries)
    add(bench, written(GATE, origin="LGA", delay=2, gate="B7"), first=2)
    bench.wait_for_input()
    assert flights(bench)[2] == {"origin": "LGA", "delay": 2}
    assert levels_of("slow path", caplog) == []
    known = written(DELAY, origin="EWR", delay=4)
    tail = [*GATE, {"name": "tail", "type": "string", "default": ""}]
    unknown = written(tail, origin="BOS", delay=3, gate=None, tail="N1")
    with registry.hanging():
        add(bench, known, first=3)
        bench.wait_for_input()
        assert flights(bench)[3] == {"origin": "EWR", "delay": 4}
        assert levels_of("2 known schemas are used", caplog) == ["WARNING"]
        add(bench, unknown, first=4)
        wait_until(lambda: levels_of("does not answer", caplog)[1:], what="a retry")
        assert bench.ends == []
    bench.wait_for_input()
    assert flights(bench)[4] == {"origin": "BOS", "delay": 3}
    assert bench.outbox.of(RecordFailed) == []


def test_the_examples_of_the_how_to(
    bench: Bench, registry: Registry, client: SchemaRegistryClient
) -> None:
    client.register_schema("flights-value", Schema(schema(DELAY), "AVRO"))
    given: dict[str, Any] = {
        "agent": SimpleNamespace(pipeline=define),
        "source": kafka_source(bench),
        "schema": schema(DELAY),
        "LogAndContinue": LogAndContinue,
    }
    for example in examples("docs/how-to/avro.md"):
        variables = dict(given)
        exec(example.replace("http://registry:8081", registry.url), variables)
        flight = variables["flights"].shape.schema["flight"].dataType
        assert [each.name for each in flight][:2] == ["origin", "delay"]


def test_the_first_subject_gives_the_result_its_schema(
    bench: Bench, registry: Registry, client: SchemaRegistryClient
) -> None:
    """The schema of the first one is also, with the same id, an older version of the second."""
    for subject, fields in (("other", ORIGIN), ("other", DELAY), ("own", ORIGIN)):
        client.register_schema(subject, Schema(schema(fields), "AVRO"))
    avro = SchemaRegistry(registry.url).avro("framed", subject=["own", "other"])
    flight = defined(bench).deserialize("flight", avro).shape.schema["flight"].dataType
    assert isinstance(flight, T.StructType)
    assert flight.names == ["origin"]


def test_a_wrong_registry_subject_or_column_is_one_line_at_the_start(
    bench: Bench, registry: Registry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    def message(avro: Any) -> str:
        with pytest.raises((PipelineInvalid, InvalidValue)) as raised:
            defined(bench).deserialize("flight", avro())
        [line] = str(raised.value).splitlines()
        return line

    def of(subject: str, url: str = registry.url, **more: Any) -> Any:
        return lambda: SchemaRegistry(url).avro(**{"value": "framed", "subject": subject} | more)

    absent = "http://eve:secret@127.0.0.1:1"
    assert message(of("none-value")) == (
        f"deserialize 'flight': the registry {registry.url} under none-value has no Avro schema"
    )
    assert message(of("flights-value", absent)).startswith(
        "deserialize 'flight': the schema registry http://127.0.0.1:1 does not answer: "
    )
    client.register_schema("v", Schema(schema(ORIGIN), "AVRO"))
    assert message(of("v", value="value")) == (
        "deserialize 'flight': value is string; framed values are binary"
    )
    assert message(of("v", value="nowhere")).startswith("deserialize 'flight': [UNRESOLVED_COLUMN")
    assert message(lambda: SchemaRegistry("no url")).startswith("SchemaRegistry: no url: ")
    unreadable = tmp_path / "unreadable"
    unreadable.mkdir()
    (unreadable / "1.avsc").write_bytes(b"\xff")
    assert "1.avsc cannot be read: " in message(lambda: SchemaFolder(unreadable).avro("framed"))
    assert "an existing folder" in message(lambda: SchemaFolder(tmp_path / "none").avro())
    assert "several names" in message(of(""))
