"""Every key that `errors=` may have: its name, default, what it allows, and how it is read."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from agents.handlers import Handler, check_handler
from controlplane.domain.errors import InvalidValue

T = TypeVar("T")

REDACTED_NAMES = ("password", "secret", "token", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Generic[T]):
    """One key of `errors=`: `parse` raises ValueError for a value outside `allowed`."""

    name: str
    default: T
    allowed: str
    parse: Callable[[object], T]


def _flag(value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _whole(least: int, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        # bool is an int in Python, and never a count.
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(value)
        number = int(value)
        if not least <= number <= most:
            raise ValueError(value)
        return number

    return parse


def _text(value: object) -> str:
    if not isinstance(value, str | os.PathLike) or not str(value).strip():
        raise ValueError(value)
    return str(value)


def _parquet(value: object) -> str:
    if value != "parquet":
        raise ValueError(value)
    return "parquet"


def _names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | set | frozenset):
        raise ValueError(value)
    return tuple(_text(part).strip() for part in parts if part != "")


def _handler(value: object) -> Handler:
    """Return the handler that a dotted path, a class or an object stands for."""
    try:
        if isinstance(value, str):
            module, _, name = value.rpartition(".")
            value = getattr(importlib.import_module(module), name)
        return check_handler("handler", value() if isinstance(value, type) else value)
    except (ImportError, AttributeError, TypeError, InvalidValue) as exc:
        raise ValueError(value) from exc


LOG_ENABLE = Key(name="errors.log.enable", default=False, allowed="true or false", parse=_flag)
LOG_INCLUDE_MESSAGES = Key(
    name="errors.log.include.messages", default=False, allowed="true or false", parse=_flag
)
DLQ_ENABLE = Key(name="errors.dlq.enable", default=False, allowed="true or false", parse=_flag)
DLQ_FORMAT = Key(name="errors.dlq.format", default="parquet", allowed="parquet", parse=_parquet)
DLQ_PATH: Key[str | None] = Key(
    name="errors.dlq.path",
    default=None,
    allowed="a folder on a file system that executors can write to",
    parse=_text,
)
REDACT: Key[tuple[str, ...]] = Key(
    name="errors.redact",
    default=REDACTED_NAMES,
    allowed="names and JSON paths, as a list or separated by commas",
    parse=_names,
)
EXAMPLES_LIMIT = Key(
    name="errors.examples.limit",
    default=100,
    allowed="a whole number from 1 to 10000",
    parse=_whole(1, 10_000),
)
HELD_CHUNK_RECORDS = Key(
    name="held.chunk.records",
    default=10_000,
    allowed="a whole number from 1 to 1000000",
    parse=_whole(1, 1_000_000),
)
SPOOL_BYTES = Key(
    name="spool.bytes.limit",
    default=2**30,
    allowed="a whole number of bytes from 1048576 (1 MiB) to 2^62",
    parse=_whole(2**20, 2**62),
)
SHUTDOWN_TIMEOUT_MS = Key(
    name="error.shutdown.timeout.ms",
    default=60_000,
    allowed="a whole number of milliseconds from 1 to 86400000 (a day)",
    parse=_whole(1, 86_400_000),
)
_HANDLER_RULE = "a dotted path to a handler, or an object with handle(context, record, exception)"
DESERIALIZATION_HANDLER: Key[Handler | None] = Key(
    name="deserialization.exception.handler", default=None, allowed=_HANDLER_RULE, parse=_handler
)
PROCESSING_HANDLER: Key[Handler | None] = Key(
    name="processing.exception.handler", default=None, allowed=_HANDLER_RULE, parse=_handler
)

_ALL = (
    LOG_ENABLE,
    LOG_INCLUDE_MESSAGES,
    DLQ_ENABLE,
    DLQ_FORMAT,
    DLQ_PATH,
    REDACT,
    EXAMPLES_LIMIT,
    HELD_CHUNK_RECORDS,
    SPOOL_BYTES,
    SHUTDOWN_TIMEOUT_MS,
    DESERIALIZATION_HANDLER,
    PROCESSING_HANDLER,
)
KEYS = {key.name: cast("Key[object]", key) for key in _ALL}
#: How Kafka Streams spelled them before KIP-1056; the same keys.
OLD_SPELLINGS = {
    f"default.{key.name}": key.name for key in (DESERIALIZATION_HANDLER, PROCESSING_HANDLER)
}
