"""The settings of the error handling: name, default, allowed values, and alternative names."""

from __future__ import annotations

from arrester.domain.error_policy.policy import Scope
from arrester.domain.error_policy.redaction_rules import RULE as FIELDS_RULE
from arrester.domain.error_policy.redaction_rules import fields_parser
from arrester.domain.error_policy.setting_types import (
    CONVERTER_RULE,
    FLAG_RULE,
    HANDLER_RULE,
    Key,
    any_whole_number,
    choice,
    class_names,
    flag,
    handler,
    share,
    sink_format,
    text_or_nothing,
    whole_number,
)
from arrester.domain.error_policy.tolerance import Window

REDACTED_NAMES = ("password", "secret", "token", "key")
#: Keys with these prefixes are passed on unchecked: to Spark's writer, to the Kafka producer.
DLQ_OPTIONS, DLQ_PRODUCER = "errors.dlq.options.", "errors.dlq.producer."
_LIMIT_RULE = "a whole number; -1 is infinite"
_CLASS_RULE = "dotted names of exception classes, or Spark error conditions, as a list or by commas"


def _limit(name: str, meaning: str) -> Key[int | None]:
    return Key(
        name=name, default=None, allowed=_LIMIT_RULE, parse=whole_number(-1), meaning=meaning
    )


def _flag(name: str, meaning: str, *, default: bool = False) -> Key[bool]:
    return Key(name=name, default=default, allowed=FLAG_RULE, parse=flag, meaning=meaning)


def _text(
    name: str, allowed: str, meaning: str, *, connect_name: str | None = None
) -> Key[str | None]:
    return Key(
        name=name,
        default=None,
        allowed=allowed,
        parse=text_or_nothing,
        connect_name=connect_name,
        meaning=meaning,
    )


def _handler(name: str, meaning: str) -> Key[object]:
    return Key(
        name=name,
        default=None,
        allowed=HANDLER_RULE,
        parse=handler,
        former_name=f"default.{name}",
        meaning=meaning,
    )


def _classes(name: str, meaning: str) -> Key[tuple[str, ...]]:
    return Key(name=name, default=(), allowed=_CLASS_RULE, parse=class_names, meaning=meaning)


def _count(
    name: str,
    meaning: str,
    default: int,
    minimum: int,
    maximum: int,
    *,
    connect_name: str | None = None,
) -> Key[int]:
    allowed = f"a whole number from {minimum} to {maximum}"
    return Key(
        name=name,
        default=default,
        allowed=allowed,
        parse=whole_number(minimum, maximum),
        connect_name=connect_name,
        meaning=meaning,
    )


def _choice(name: str, meaning: str, *names: str) -> Key[str]:
    """Return a setting with a fixed set of values; the first one is the default."""
    allowed = f"{', '.join(names[:-1])} or {names[-1]}"
    return Key(name=name, default=names[0], allowed=allowed, parse=choice(*names), meaning=meaning)


RETRIES_LIMIT = _limit(
    "errors.retries.limit",
    "Retries of a failed operation. Neither this nor `errors.retry.timeout` set: no retries.",
)
RETRY_TIMEOUT: Key[int | None] = Key(
    name="errors.retry.timeout",
    meaning="Retry budget in ms from the first attempt. The budget that is used up first counts.",
    default=None,
    allowed="a whole number of milliseconds; negative is infinite",
    parse=any_whole_number,
)
RETRY_DELAY_MAX = _count(
    "errors.retries.delay.max.ms",
    "Waits start at 300 ms and double; above this they are random below it.",
    60_000,
    1,
    2**63 - 1,
    connect_name="errors.retry.delay.max.ms",
)
TOLERANCE: Key[str | None] = Key(
    name="errors.tolerance",
    meaning="Kafka Connect's spelling: `all` is a tolerance limit of -1, `none` a limit of 0.",
    default=None,
    allowed="none or all",
    parse=choice("none", "all"),
)
TOLERANCE_LIMIT = _limit(
    "errors.tolerance.limit", "Failed records of one task that a run may skip. One more is FAIL."
)
RATE_LIMIT = _limit(
    "errors.tolerance.rate.limit", "The same limit per window of `errors.tolerance.rate.duration`."
)
RATE_DURATION = _choice(
    "errors.tolerance.rate.duration", "Window of the rate limit, aligned to the epoch.", *Window
)
RETRIABLE_CLASSES = _classes(
    "errors.retriable.classes", "Classes that are retried, in addition to the built-in table."
)
FATAL_CLASSES = _classes(
    "errors.fatal.classes", "Classes that are FAIL at once, without calling the handler."
)
SELF_HEALING_CLASSES = _classes(
    "errors.self.healing.classes", "Classes after which the query restarts without a failed record."
)
FAILURE_SCOPE = _choice(
    "errors.failure.scope",
    "What FAIL stops: the whole run, or only the task of the record.",
    *Scope,
)
OUTAGE_SHARE: Key[float | None] = Key(
    name="errors.outage.share",
    meaning="Share of a micro-batch that is an outage if it fails with one cause. Not set: off.",
    default=None,
    allowed="a number above 0 and at most 1",
    parse=share,
)
OUTAGE_MINIMUM = _count(
    "errors.outage.minimum",
    "Least number of failed records that count as an outage.",
    100,
    1,
    2**31 - 1,
)
OUTAGE_RESPONSE = _choice(
    "errors.outage.response",
    "Response to an outage: pause the affected tasks, or end the run.",
    "pause",
    "fail",
)
DECISIONS = _choice(
    "errors.decisions",
    "Write a journal entry per micro-batch if a record failed, or always.",
    "failures",
    "always",
)
LOG_ENABLE = _flag(
    "errors.log.enable",
    "Log each failed record reported in full to `arrester.failures`, with one trace per cause.",
)
LOG_INCLUDE_CONFIGS = _flag(
    "errors.log.include.configs", "Add the class and configuration of the stage to that line."
)
LOG_INCLUDE_MESSAGES = _flag(
    "errors.log.include.messages", "Add the record, after redaction, to that line."
)
DLQ_ENABLE = _flag(
    "errors.dlq.enable",
    "Write skipped records as dead letters. Requires a path, a topic, or options of the sink.",
)
DLQ_FORMAT = Key(
    name="errors.dlq.format",
    meaning="Spark sink for dead letters, such as `parquet`, `json` or `jdbc`.",
    default="parquet",
    allowed="the name of a Spark sink that takes several columns: not text",
    parse=sink_format,
)
#: Formats that are files in a folder, and so need a path.
FILES = ("avro", "csv", "json", "orc", "parquet", "xml")
DLQ_PATH = _text(
    "errors.dlq.path",
    "a folder on a file system that executors can write to",
    "Folder for dead letters in files, one subfolder per UTC day.",
)
DLQ_TOPIC = _text(
    "errors.dlq.topic.name",
    "the name of a Kafka topic",
    "Kafka topic for dead letters, instead of a path.",
    connect_name="errors.deadletterqueue.topic.name",
)
DLQ_PARTITIONS = _count(
    "errors.dlq.topic.partitions",
    "Partitions of the topic if it has to be created.",
    5,
    1,
    2**31 - 1,
)
DLQ_REPLICATION = _count(
    "errors.dlq.topic.replication.factor",
    "Replicas of the topic if it has to be created.",
    3,
    1,
    2**15 - 1,
    connect_name="errors.deadletterqueue.topic.replication.factor",
)
DLQ_HEADERS = _flag(
    "errors.deadletterqueue.context.headers.enable",
    "Add headers with the context of the failure. If false, only the record id is added.",
    default=True,
)
DLQ_CONVERTER = _text(
    "errors.dlq.converter",
    CONVERTER_RULE,
    "Builds the Kafka value of a dead letter from its source row. Must be importable on executors.",
)
DLQ_INCLUDE_CONFIGS = _flag(
    "errors.dlq.include.configs", "Add the configuration of all stages to each dead letter."
)
DLQ_INCLUDE_MESSAGES = _flag(
    "errors.dlq.include.messages",
    "Add the source row as JSON in a header. Files and tables always contain it.",
)
DLQ_REDACT = _flag("errors.dlq.redact", "Apply the redaction rules to dead letters, too.")
REDACT: Key[tuple[str, ...]] = Key(
    name="errors.redact",
    meaning="Fields that never leave the driver, in addition to `errors.redact.builtin`. A name "
    "matches any field name that contains it.",
    default=(),
    allowed=FIELDS_RULE,
    parse=fields_parser(),
)
REDACT_BUILTIN = _flag(
    "errors.redact.builtin",
    f"Fields whose names contain {', '.join(REDACTED_NAMES)} do not leave the driver either.",
    default=True,
)
REDACT_DEFAULT = _choice(
    "errors.redact.default",
    "`deny`: only the fields in `errors.redact.show` or `show=` leave the driver.",
    "allow",
    "deny",
)
REDACT_SHOW: Key[tuple[str, ...]] = Key(
    name="errors.redact.show",
    meaning="Fields that leave the driver when the default is `deny`.",
    default=(),
    allowed=FIELDS_RULE,
    parse=fields_parser(items=False),
)
REDACT_REVEAL = _flag(
    "errors.redact.reveal",
    "Encrypt the values of fields that do not leave the driver to the server, which shows them to "
    "admins on request, with a reason. Needs `ARRESTER_SERVER_KEY`.",
)
INCLUDE_SOURCE = _flag(
    "errors.include.source",
    "Report the 5 lines of code around the one that raised, once per error group and run.",
    default=True,
)
EXAMPLES_LIMIT = _count(
    "errors.examples.limit",
    "Failures reported in full per micro-batch and cause. Further ones are counted only.",
    100,
    1,
    10_000,
)
HELD_RECORDS_LIMIT = _limit(
    "held.records.limit", "Held records of one pipeline at which the run ends."
)
HELD_BYTES_LIMIT = _limit(
    "held.bytes.limit", "Bytes of held records on disk at which the run ends."
)
HELD_LIMIT_RESPONSE = _choice(
    "held.limit.response",
    "How a run ends at a limit: call the uncaught exception handler, or stop.",
    "fail",
    "stop",
)
HELD_CHUNK_RECORDS = _count(
    "held.chunk.records",
    "Held records of resumed tasks in the first chunk, about. Chunks grow if their records take "
    "less than 2 s, and shrink above 5 s.",
    10_000,
    1,
    1_000_000,
)
SPOOL_BYTES = _count(
    "spool.bytes.limit",
    "Disk space for unconfirmed events. If it is full, failures are counted only.",
    2**30,
    2**20,
    2**62,
)
SHUTDOWN_TIMEOUT_MS = _count(
    "error.shutdown.timeout.ms",
    "Upper bound of any shutdown. After it, Spark jobs are cancelled.",
    60_000,
    1,
    86_400_000,
)
DESERIALIZATION_HANDLER = _handler(
    "deserialization.exception.handler",
    "Handler of `.deserialize` and of stage `source` without `on_error=`. Default: FAIL.",
)
PROCESSING_HANDLER = _handler(
    "processing.exception.handler",
    "Handler of all other steps without `on_error=`. Default: FAIL.",
)
PRODUCTION_HANDLER = _handler(
    "production.exception.handler",
    "Handler of sinks without `on_error=`, and of failed dead-letter writes. Default: FAIL.",
)

#: All settings, in the order of their definition.
KEYS: dict[str, Key[object]] = {
    key.name: key for key in list(globals().values()) if isinstance(key, Key)
}
#: The key for each alternative name.
ALIASES: dict[str, Key[object]] = {
    other: key
    for key in KEYS.values()
    for other in (key.connect_name, key.former_name)
    if other is not None
}


def spellings(name: str) -> set[str]:
    """Return all names of the setting with this name."""
    key = KEYS.get(name) or ALIASES.get(name)
    if key is None:
        return {name}
    return {each for each in (key.name, key.connect_name, key.former_name) if each is not None}
