"""Framed values in a column, and what their frames contain: Avro records or Protobuf messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from arrester.agents.schema_registry.errors import InvalidFrame, LogicalTypeMismatch, raised
from arrester.agents.spark.avro_logical_types import resolution
from arrester.domain.errors import InvalidValue

#: Returns the texts of schemas by id, the newest last; raises SchemaRegistryUnavailable.
LookUp = Callable[[], Mapping[int, str]]

#: The indexes of the first message of a file, for which serializers write a single zero byte.
FIRST_MESSAGE: Final = (0,)
_SEVEN_BITS: Final = 0x7F
_SHOWN_BYTES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedValues(ABC):
    """Framed values, for `deserialize`: what the methods of `SchemaRegistry` return."""

    #: The name of the format, as registries and people write it.
    format: ClassVar[str]
    value: Column
    look_up: LookUp
    #: Where the schemas come from, for messages.
    origin: str

    def __str__(self) -> str:
        return f"framed {self.format} in {self.value}, with the schemas of {self.origin}"

    @abstractmethod
    def parsed(self, content: Column, schema: str, *, newest: str) -> Column:
        """Return the result for the bytes behind schema ids of `schema`.

        `newest` is the newest schema at the start.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedAvro(FramedValues):
    """Framed Avro records: the result is the record."""

    format = "Avro"
    #: The schema of the result; None: the newest one at the start.
    schema: str | None

    def parsed(self, content: Column, schema: str, *, newest: str) -> Column:
        """Return the record, resolved to the schema of the result.

        It fails if fields have logical types that would be misread.
        """
        resolved = resolution(schema, self.schema or newest)
        options = {"mode": "FAILFAST", "avroSchema": resolved.schema}
        if not resolved.differences:
            return from_avro(content, schema, options)
        text = "; ".join(map(str, resolved.differences))
        # Only for the type of the expression: the bytes are not NULL.
        typed = from_avro(content, resolved.schema, options)
        return F.when(content.isNull(), typed).otherwise(raised(LogicalTypeMismatch, F.lit(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedProtobuf(FramedValues):
    """Framed Protobuf messages: the result is the message as bytes."""

    format = "Protobuf"
    #: The place of the message in its file: its index, then those of messages within it.
    message: tuple[int, ...]

    def parsed(self, content: Column, schema: str, *, newest: str) -> Column:
        """Return the bytes of the message; it fails for one at another place of its file."""
        other = raised(
            InvalidFrame,
            F.lit(f"the message indexes of a framed value are expected to be {[*self.message]}; "),
            F.lit("behind its schema id, this begins with "),
            F.hex(F.substring(content, 1, _SHOWN_BYTES)),
        )
        result = other
        for prefix in _prefixes(self.message):
            begins = F.hex(F.substring(content, 1, len(prefix))) == prefix.hex().upper()
            message = content.substr(F.lit(len(prefix) + 1), F.length(content))
            result = F.when(begins, message).otherwise(result)
        return result


def checked_message(indexes: object) -> tuple[int, ...]:
    """Return message indexes; raises InvalidValue for anything else."""
    given = tuple(indexes) if isinstance(indexes, list | tuple) else ()
    if not given or not all(map(_is_index, given)):
        allowed = "the index of the message in its file, and those of messages within it: [0]"
        raise InvalidValue("protobuf: message", indexes, allowed)
    return given


def _is_index(index: object) -> bool:
    return isinstance(index, int) and not isinstance(index, bool) and index >= 0


def _prefixes(message: tuple[int, ...]) -> Iterator[bytes]:
    """Yield how serializers write the indexes: their number and each of them, as signed varints."""
    yield bytes(part for number in (len(message), *message) for part in _varint(2 * number))
    if message == FIRST_MESSAGE:
        yield b"\0"


def _varint(number: int) -> Iterator[int]:
    while number > _SEVEN_BITS:
        yield number & _SEVEN_BITS | _SEVEN_BITS + 1
        number >>= 7
    yield number
