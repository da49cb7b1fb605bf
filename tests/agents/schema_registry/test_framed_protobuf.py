"""Protobuf messages: plain and framed ones, every kind of bad value, and the how-to."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndContinue
from arrester.agents.schema_registry.framed_expression import FramedExpression
from arrester.agents.schema_registry.registry import SchemaFolder, SchemaRegistry
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed
from tests import schema_registry_process
from tests.agents.kafka_records import KafkaRecord, add_records, kafka_source
from tests.agents.pipeline_bench import Bench, read_sink, sink_to
from tests.agents.test_examples_of_the_docs import examples
from tests.schema_registry_process import Registry

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = "docs/how-to/protobuf.md"
#: What protoc makes of a file, without its version check.
GENERATED = """
from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile({file!r})
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, "flight_pb2", globals())
"""


@pytest.fixture(scope="module")
def generated(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """Return the messages of `flight.proto`, whose module executors have, too."""
    file = FileDescriptorProto(name="flight.proto", package="flights", syntax="proto3")
    for name in ("Flight", "Cancelled"):
        message = file.message_type.add(name=name)
        message.field.add(
            name="origin", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL
        )
        message.field.add(name="delay", number=2, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    folder = tmp_path_factory.mktemp("generated")
    module = folder / "flight_pb2.py"
    module.write_text(GENERATED.format(file=file.SerializeToString()))
    spark.sparkContext.addPyFile(str(module))
    sys.path.insert(0, str(folder))
    yield vars(importlib.import_module("flight_pb2"))
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with schema_registry_process.running() as registry:
        yield registry


def run(bench: Bench, flights: Any, *values: bytes | None) -> dict[int, str]:
    """Run a pipeline over some values; return the classes of failures by offset."""
    records = [KafkaRecord(value=each, offset=n) for n, each in enumerate(values, 1)]
    add_records(bench, *records)
    bench.start(flights.write(sink_to(bench.folder / "out"), atomic=True))
    bench.wait_for_input()
    bench.stop()
    assert len(bench.dead_letters()) == len(bench.outbox.of(RecordFailed))
    return {
        each.position or 0: each.failure.exception_class.rpartition(".")[2]
        for each in bench.outbox.of(RecordFailed)
    }


def written(bench: Bench) -> list[dict[str, Any]]:
    return [row for _, row in read_sink(bench.folder / "out")]


def test_plain_messages_of_the_how_to(bench: Bench, generated: dict[str, Any]) -> None:
    Flight = generated["Flight"]
    _, plain, _ = examples(PAGE)
    given: dict[str, Any] = {
        "agent": SimpleNamespace(pipeline=define),
        "source": kafka_source(bench),
        "LogAndContinue": LogAndContinue,
        "__name__": "__main__",
    }
    exec(plain, given)

    failed = run(
        bench,
        given["flights"],
        Flight(origin="EWR", delay=7).SerializeToString(),
        None,
        Flight(origin="LGA", delay=9).SerializeToString()[:-1],
        b"",
        b"NA",
        Flight(origin="JFK").SerializeToString(),
    )

    assert failed == {3: "DecodeError", 4: "ValueError", 5: "DecodeError"}
    assert written(bench) == [{"origin": "EWR", "delay": 7}, {"origin": "JFK", "delay": 0}]


@pytest.mark.long
def test_framed_messages_of_the_how_to(
    bench: Bench, registry: Registry, generated: dict[str, Any]
) -> None:
    """Values come from Confluent's own serializer, which registers their schema."""
    Flight, Cancelled = generated["Flight"], generated["Cancelled"]
    place = SerializationContext("flights", MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:

        def framed(message: Any) -> bytes:
            value = ProtobufSerializer(type(message), client)(message, place)
            assert isinstance(value, bytes)
            return value

        first, other = framed(Flight(origin="EWR", delay=7)), framed(Cancelled(origin="LGA"))
    *_, example = examples(PAGE)
    example = example.replace("http://registry:8081", registry.url)
    # Otherwise the task would be paused.
    example = example.replace("        on={UnknownSchemaId: PAUSE},\n", "")
    given: dict[str, Any] = {
        "agent": SimpleNamespace(pipeline=define),
        "source": kafka_source(bench),
        "__name__": "__main__",
    }
    exec(example, given)

    failed = run(
        bench,
        given["flights"],
        first,
        None,
        other,
        first[:4],
        b"\0\0\0\x27\x0f" + first[5:],
        Flight(origin="EWR").SerializeToString(),
        first[:-1],
        # The first message of a file, not in its short form.
        first[:5] + b"\x02\0" + Flight(origin="BOS").SerializeToString(),
    )

    assert failed == {
        3: "InvalidFrame",
        4: "InvalidFrame",
        5: "UnknownSchemaId",
        6: "InvalidFrame",
        7: "DecodeError",
    }
    assert written(bench) == [{"origin": "EWR", "delay": 7}, {"origin": "BOS", "delay": 0}]
    messages = {each.position: each.failure.message for each in bench.outbox.of(RecordFailed)}
    assert messages[3] == (
        "the message indexes of a framed value are expected to be [0]; "
        "behind its schema id, this begins with 02020A034C"
    )


@pytest.mark.parametrize(
    ("message", "indexes"), [((1,), "0202"), ((0, 1), "040002"), ((64,), "028001")]
)
def test_a_message_has_its_place_in_the_file(
    spark: SparkSession, tmp_path: Path, message: tuple[int, ...], indexes: str
) -> None:
    (tmp_path / "1.proto").write_text('syntax = "proto3";')
    (tmp_path / "2.avsc").write_text('"string"')
    framed = SchemaFolder(tmp_path).protobuf("framed", message=message)

    def content(value: str) -> bytes:
        frame = spark.range(1).select(F.unhex(F.lit(value)).alias("framed"))
        expression = FramedExpression("message", framed, frame)
        [[found]] = frame.select(expression.column).collect()
        return bytes(found)

    assert content("0000000001" + indexes + "AA00") == b"\xaa\0"
    assert content("0000000001" + indexes) == b""
    with pytest.raises(Exception, match="InvalidFrame: the message indexes"):
        content("0000000001" + "00" + "AA")
    # An Avro schema is none of Protobuf.
    with pytest.raises(Exception, match="the schema id 2 is unknown"):
        content("0000000002" + indexes + "AA")


@pytest.mark.parametrize("message", [[], [-1], [True], "0", 0, None, ["0"]])
def test_message_indexes_that_are_none_are_refused(message: Any) -> None:
    with pytest.raises(InvalidValue, match="protobuf: message"):
        SchemaRegistry("http://127.0.0.1:1").protobuf("value", subject="v", message=message)
