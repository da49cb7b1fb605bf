"""Every setting of the error handling: name, default, domain, and its other spellings."""

from __future__ import annotations

from typing import cast

from arrester.controlplane.domain.error_policy.policy import Scope
from arrester.controlplane.domain.error_policy.redaction_rules import RULE as FIELDS_RULE
from arrester.controlplane.domain.error_policy.redaction_rules import fields
from arrester.controlplane.domain.error_policy.setting_types import (
    CONVERTER_RULE,
    FLAG_RULE,
    HANDLER_RULE,
    Key,
    any_whole,
    choice,
    class_names,
    flag,
    handler,
    share,
    sink_format,
    text_or_nothing,
    whole,
)
from arrester.controlplane.domain.error_policy.tolerance import Window

REDACTED_NAMES = ("password", "secret", "token", "key")
#: Whatever follows these is handed on unread: to Spark's writer, to the Kafka producer.
DLQ_OPTIONS, DLQ_PRODUCER = "errors.dlq.options.", "errors.dlq.producer."
_LIMIT_RULE = "a whole number; -1 is infinite"
_CLASS_RULE = "dotted names of exception classes, or Spark error conditions, as a list or by commas"


def _limit(name: str) -> Key[int | None]:
    return Key(name=name, default=None, allowed=_LIMIT_RULE, parse=whole(-1))


def _flag(name: str, *, default: bool = False, shipped: str | None = None) -> Key[bool]:
    return Key(name=name, default=default, allowed=FLAG_RULE, parse=flag, shipped=shipped)


def _text(name: str, allowed: str, *, shipped: str | None = None) -> Key[str | None]:
    return Key(name=name, default=None, allowed=allowed, parse=text_or_nothing, shipped=shipped)


def _handler(name: str) -> Key[object]:
    return Key(name=name, default=None, allowed=HANDLER_RULE, parse=handler, old=f"default.{name}")


def _classes(name: str) -> Key[tuple[str, ...]]:
    return Key(name=name, default=(), allowed=_CLASS_RULE, parse=class_names)


def _count(
    name: str, default: int, least: int, most: int, *, shipped: str | None = None
) -> Key[int]:
    allowed = f"a whole number from {least} to {most}"
    return Key(
        name=name, default=default, allowed=allowed, parse=whole(least, most), shipped=shipped
    )


RETRIES_LIMIT = _limit("errors.retries.limit")
RETRY_TIMEOUT: Key[int | None] = Key(
    name="errors.retry.timeout",
    default=None,
    allowed="a whole number of milliseconds; negative is infinite",
    parse=any_whole,
)
RETRY_DELAY_MAX = _count(
    "errors.retries.delay.max.ms", 60_000, 1, 2**63 - 1, shipped="errors.retry.delay.max.ms"
)
TOLERANCE: Key[str | None] = Key(
    name="errors.tolerance", default=None, allowed="none or all", parse=choice("none", "all")
)
TOLERANCE_LIMIT = _limit("errors.tolerance.limit")
RATE_LIMIT = _limit("errors.tolerance.rate.limit")
RATE_DURATION = Key(
    name="errors.tolerance.rate.duration",
    default="minute",
    allowed="minute, hour or day",
    parse=choice(*Window),
)
RETRIABLE_CLASSES = _classes("errors.retriable.classes")
FATAL_CLASSES = _classes("errors.fatal.classes")
SELF_HEALING_CLASSES = _classes("errors.self.healing.classes")
FAILURE_SCOPE = Key(
    name="errors.failure.scope",
    default="thread",
    allowed="thread or task",
    parse=choice(*Scope),
)
OUTAGE_SHARE: Key[float | None] = Key(
    name="errors.outage.share",
    default=None,
    allowed="a number above 0 and at most 1",
    parse=share,
)
OUTAGE_MINIMUM = _count("errors.outage.minimum", 100, 1, 2**31 - 1)
OUTAGE_RESPONSE = Key(
    name="errors.outage.response",
    default="pause",
    allowed="pause or fail",
    parse=choice("pause", "fail"),
)
DECISIONS = Key(
    name="errors.decisions",
    default="failures",
    allowed="failures or always",
    parse=choice("failures", "always"),
)
LOG_ENABLE = _flag("errors.log.enable")
LOG_INCLUDE_CONFIGS = _flag("errors.log.include.configs")
LOG_INCLUDE_MESSAGES = _flag("errors.log.include.messages")
DLQ_ENABLE = _flag("errors.dlq.enable")
DLQ_FORMAT = Key(
    name="errors.dlq.format",
    default="parquet",
    allowed="the name of a Spark sink that takes several columns: not text",
    parse=sink_format,
)
#: Formats that are files in a folder, and so need a path.
FILES = ("avro", "csv", "json", "orc", "parquet", "xml")
DLQ_PATH = _text("errors.dlq.path", "a folder on a file system that executors can write to")
DLQ_TOPIC = _text(
    "errors.dlq.topic.name",
    "the name of a Kafka topic",
    shipped="errors.deadletterqueue.topic.name",
)
DLQ_PARTITIONS = _count("errors.dlq.topic.partitions", 5, 1, 2**31 - 1)
DLQ_REPLICATION = _count(
    "errors.dlq.topic.replication.factor",
    3,
    1,
    2**15 - 1,
    shipped="errors.deadletterqueue.topic.replication.factor",
)
DLQ_HEADERS = _flag("errors.deadletterqueue.context.headers.enable", default=True)
DLQ_CONVERTER = _text("errors.dlq.converter", CONVERTER_RULE)
DLQ_INCLUDE_CONFIGS = _flag("errors.dlq.include.configs")
DLQ_INCLUDE_MESSAGES = _flag("errors.dlq.include.messages")
DLQ_REDACT = _flag("errors.dlq.redact")
REDACT: Key[tuple[str, ...]] = Key(
    name="errors.redact",
    default=REDACTED_NAMES,
    allowed=FIELDS_RULE,
    parse=fields(),
)
REDACT_DEFAULT = Key(
    name="errors.redact.default",
    default="allow",
    allowed="allow or deny",
    parse=choice("allow", "deny"),
)
REDACT_SHOW: Key[tuple[str, ...]] = Key(
    name="errors.redact.show",
    default=(),
    allowed=FIELDS_RULE,
    parse=fields(items=False),
)
EXAMPLES_LIMIT = _count("errors.examples.limit", 100, 1, 10_000)
HELD_RECORDS_LIMIT = _limit("held.records.limit")
HELD_BYTES_LIMIT = _limit("held.bytes.limit")
HELD_LIMIT_RESPONSE = Key(
    name="held.limit.response",
    default="fail",
    allowed="fail or stop",
    parse=choice("fail", "stop"),
)
HELD_CHUNK_RECORDS = _count("held.chunk.records", 10_000, 1, 1_000_000)
SPOOL_BYTES = _count("spool.bytes.limit", 2**30, 2**20, 2**62)
SHUTDOWN_TIMEOUT_MS = _count("error.shutdown.timeout.ms", 60_000, 1, 86_400_000)
DESERIALIZATION_HANDLER = _handler("deserialization.exception.handler")
PROCESSING_HANDLER = _handler("processing.exception.handler")
PRODUCTION_HANDLER = _handler("production.exception.handler")

_ALL = (
    *(RETRIES_LIMIT, RETRY_TIMEOUT, RETRY_DELAY_MAX),
    *(TOLERANCE, TOLERANCE_LIMIT, RATE_LIMIT, RATE_DURATION),
    *(RETRIABLE_CLASSES, FATAL_CLASSES, SELF_HEALING_CLASSES, FAILURE_SCOPE, DECISIONS),
    *(OUTAGE_SHARE, OUTAGE_MINIMUM, OUTAGE_RESPONSE),
    *(LOG_ENABLE, LOG_INCLUDE_CONFIGS, LOG_INCLUDE_MESSAGES),
    *(DLQ_ENABLE, DLQ_FORMAT, DLQ_PATH, DLQ_TOPIC, DLQ_PARTITIONS, DLQ_REPLICATION),
    *(DLQ_HEADERS, DLQ_CONVERTER, DLQ_INCLUDE_CONFIGS, DLQ_INCLUDE_MESSAGES),
    DLQ_REDACT,
    *(REDACT, REDACT_DEFAULT, REDACT_SHOW),
    *(
        EXAMPLES_LIMIT,
        HELD_RECORDS_LIMIT,
        HELD_BYTES_LIMIT,
        HELD_LIMIT_RESPONSE,
        HELD_CHUNK_RECORDS,
    ),
    *(SPOOL_BYTES, SHUTDOWN_TIMEOUT_MS),
    *(DESERIALIZATION_HANDLER, PROCESSING_HANDLER, PRODUCTION_HANDLER),
)
KEYS = {key.name: cast("Key[object]", key) for key in _ALL}
#: Every other name under which a key is known, and that key.
SPELLINGS = {
    other: key for key in KEYS.values() for other in (key.shipped, key.old) if other is not None
}
