"""The configuration of error handling, read and checked as a whole, with all faults in one message.

Handlers stay as given: the agent imports them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from arrester.agents.error_policy.setting_reader import SettingReader
from arrester.domain.error_policy import setting_definitions as keys
from arrester.domain.error_policy.classify import (
    DEFAULT_TABLE,
    ClassificationTable,
    Kind,
)
from arrester.domain.error_policy.policy import OutagePolicy, Policy, Scope, StageKind
from arrester.domain.error_policy.retry import UNLIMITED, RetryPolicy
from arrester.domain.error_policy.tolerance import Tolerance, Window
from arrester.domain.errors import InvalidConfiguration, InvalidValue
from arrester.domain.events import FinalResponse


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """errors.log.*"""

    enable: bool
    include_configs: bool
    include_messages: bool


class DeadLetterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """errors.dlq.*, and Connect's errors.deadletterqueue.*"""

    enable: bool
    #: The destination: a Kafka topic, or else a Spark sink of this format.
    topic: str | None
    format: str
    path: str | None
    options: dict[str, object]
    partitions: int
    replication_factor: int
    producer: dict[str, object]
    converter: str | None
    context_headers: bool
    include_configs: bool
    include_messages: bool
    #: Whether errors.redact.* applies to dead letters too.
    redact: bool


class ErrorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The error settings; each field names its keys."""

    retry: RetryPolicy
    tolerance: Tolerance
    table: ClassificationTable
    #: errors.failure.scope
    scope: Scope
    #: errors.outage.*
    outage: OutagePolicy
    #: errors.decisions=always: a micro-batch without failures has an entry too.
    always_decisions: bool
    log: LogSettings
    dead_letters: DeadLetterSettings
    #: errors.redact, errors.examples.limit
    redact: tuple[str, ...]
    #: errors.redact.builtin: names that do not hide the column of `key=`.
    redact_builtin: tuple[str, ...]
    #: errors.redact.default=deny: only the fields of errors.redact.show; None: all fields.
    show: tuple[str, ...] | None
    #: errors.redact.reveal: redacted values are encrypted to the server.
    reveal: bool
    examples_limit: int
    #: errors.include.source
    source: bool
    #: held.records.limit, held.bytes.limit: None or negative means unlimited.
    held_records_limit: int | None
    held_bytes_limit: int | None
    #: held.limit.response=stop: the run ends as if it had been stopped; else it fails.
    held_limit_stops: bool
    held_chunk_records: int
    spool_bytes: int
    #: error.shutdown.timeout.ms
    shutdown_timeout_ms: int
    #: {deserialization,processing,production}.exception.handler: a path, a class or an object.
    handlers: dict[StageKind, object]

    @classmethod
    def read(cls, given: Mapping[str, object]) -> ErrorSettings:
        """Return the settings; raises InvalidConfiguration with every fault in it."""
        reader = SettingReader(given)
        settings = cls(
            retry=_retry(reader),
            tolerance=_tolerance(reader),
            table=_table(reader),
            scope=Scope(reader.key(keys.FAILURE_SCOPE)),
            outage=_outage(reader),
            always_decisions=reader.key(keys.DECISIONS) == "always",
            log=_log(reader),
            dead_letters=_dead_letters(reader),
            redact=reader.key(keys.REDACT),
            reveal=reader.key(keys.REDACT_REVEAL),
            redact_builtin=keys.REDACTED_NAMES if reader.key(keys.REDACT_BUILTIN) else (),
            show=_show(reader),
            examples_limit=reader.key(keys.EXAMPLES_LIMIT),
            source=reader.key(keys.INCLUDE_SOURCE),
            held_records_limit=reader.key(keys.HELD_RECORDS_LIMIT),
            held_bytes_limit=reader.key(keys.HELD_BYTES_LIMIT),
            held_limit_stops=reader.key(keys.HELD_LIMIT_RESPONSE) == "stop",
            held_chunk_records=reader.key(keys.HELD_CHUNK_RECORDS),
            spool_bytes=reader.key(keys.SPOOL_BYTES),
            shutdown_timeout_ms=reader.key(keys.SHUTDOWN_TIMEOUT_MS),
            handlers=_handlers(reader),
        )
        if reader.faults:
            raise InvalidConfiguration(reader.faults)
        return settings

    def policy(self, stage: StageKind) -> Policy:
        """Return the configured policy of a stage."""
        return Policy(
            handled=stage in self.handlers,
            retry=self.retry,
            tolerance=self.tolerance,
            table=self.table,
        )


def _retry(reader: SettingReader) -> RetryPolicy:
    limit, timeout_ms = reader.key(keys.RETRIES_LIMIT), reader.key(keys.RETRY_TIMEOUT)
    if limit is None:
        # A time budget alone limits the retries; without either there are none.
        limit = 0 if timeout_ms is None else UNLIMITED
    return RetryPolicy(
        limit=limit,
        timeout_ms=UNLIMITED if timeout_ms is None else timeout_ms,
        delay_max_ms=reader.key(keys.RETRY_DELAY_MAX),
    )


def _tolerance(reader: SettingReader) -> Tolerance:
    connect_value, limit = reader.key(keys.TOLERANCE), reader.key(keys.TOLERANCE_LIMIT)
    rate_limit = reader.key(keys.RATE_LIMIT)
    window = Window(reader.key(keys.RATE_DURATION))
    if rate_limit is None and window is not Window.MINUTE:
        allowed = f"only with {keys.RATE_LIMIT.name}, or minute"
        reader.faults.append(InvalidValue(keys.RATE_DURATION.name, window.value, allowed))
    if connect_value is None:
        return Tolerance(limit=limit, rate_limit=rate_limit, window=window)
    connect_limit = {"all": -1, "none": 0}[connect_value]
    reader.check_agreement(
        keys.TOLERANCE_LIMIT.name, keys.TOLERANCE.name, same=limit == connect_limit
    )
    same_rate = rate_limit in (connect_limit, -1)
    reader.check_agreement(keys.RATE_LIMIT.name, keys.TOLERANCE.name, same=same_rate)
    return Tolerance(limit=connect_limit, rate_limit=rate_limit, window=window)


def _table(reader: SettingReader) -> ClassificationTable:
    retriable = DEFAULT_TABLE.extended(Kind.RETRIABLE, reader.key(keys.RETRIABLE_CLASSES))
    fatal = retriable.extended(Kind.FATAL, reader.key(keys.FATAL_CLASSES))
    return fatal.extended(Kind.SELF_HEALING, reader.key(keys.SELF_HEALING_CLASSES))


def _show(reader: SettingReader) -> tuple[str, ...] | None:
    show = reader.key(keys.REDACT_SHOW)
    if reader.key(keys.REDACT_DEFAULT) == "deny":
        return show
    if show:
        allowed = f"nothing, unless {keys.REDACT_DEFAULT.name} is deny"
        reader.faults.append(InvalidValue(keys.REDACT_SHOW.name, show, allowed))
    return None


def _outage(reader: SettingReader) -> OutagePolicy:
    return OutagePolicy(
        share=reader.key(keys.OUTAGE_SHARE),
        minimum=reader.key(keys.OUTAGE_MINIMUM),
        response=FinalResponse(reader.key(keys.OUTAGE_RESPONSE).upper()),
    )


def _log(reader: SettingReader) -> LogSettings:
    return LogSettings(
        enable=reader.key(keys.LOG_ENABLE),
        include_configs=reader.key(keys.LOG_INCLUDE_CONFIGS),
        include_messages=reader.key(keys.LOG_INCLUDE_MESSAGES),
    )


def _dead_letters(reader: SettingReader) -> DeadLetterSettings:
    enable, topic = reader.key(keys.DLQ_ENABLE), reader.key(keys.DLQ_TOPIC)
    connect_name = keys.DLQ_TOPIC.connect_name or ""
    # Connect has no switch: a topic name enables dead letters.
    has_connect_topic = topic is not None and bool(reader.given.get(connect_name))
    reader.check_agreement(keys.DLQ_ENABLE.name, connect_name, same=enable == has_connect_topic)
    path, options = reader.key(keys.DLQ_PATH), reader.settings_under(keys.DLQ_OPTIONS)
    enable = enable or has_connect_topic
    format = reader.key(keys.DLQ_FORMAT)
    has_destination = (
        topic is not None or path is not None or (bool(options) and format not in keys.FILES)
    )
    if (
        enable
        and not has_destination
        and keys.DLQ_PATH.name not in {fault.name for fault in reader.faults}
    ):
        allowed = f"{keys.DLQ_PATH.allowed}, since {keys.DLQ_ENABLE.name} is true"
        reader.faults.append(InvalidValue(keys.DLQ_PATH.name, None, allowed))
    if format == "kafka" and topic is None:
        allowed = f"the name of a Kafka topic, since {keys.DLQ_FORMAT.name} is kafka"
        reader.faults.append(InvalidValue(keys.DLQ_TOPIC.name, None, allowed))
    _check_one_destination(reader, enable=enable, format=format)
    return DeadLetterSettings(
        enable=enable,
        topic=topic,
        format=format,
        path=path,
        options=options,
        partitions=reader.key(keys.DLQ_PARTITIONS),
        replication_factor=reader.key(keys.DLQ_REPLICATION),
        producer=reader.settings_under(keys.DLQ_PRODUCER),
        converter=reader.key(keys.DLQ_CONVERTER),
        context_headers=reader.key(keys.DLQ_HEADERS),
        include_configs=reader.key(keys.DLQ_INCLUDE_CONFIGS),
        include_messages=reader.key(keys.DLQ_INCLUDE_MESSAGES),
        redact=reader.key(keys.DLQ_REDACT),
    )


def _check_one_destination(reader: SettingReader, *, enable: bool, format: str) -> None:
    """Record settings without effect as faults: users would rely on their dead letters."""
    topic = reader.valid_names(keys.DLQ_TOPIC)
    spark = [*reader.valid_names(keys.DLQ_PATH), *reader.first_name_under(keys.DLQ_OPTIONS)]
    kafka = [*topic, *reader.first_name_under(keys.DLQ_PRODUCER)]
    if not enable:
        if (spark or kafka) and keys.DLQ_ENABLE.name not in reader.given:
            allowed = f"true or false, since {(spark + kafka)[0]} is given"
            reader.faults.append(InvalidValue(keys.DLQ_ENABLE.name, None, allowed))
        return
    if topic:
        others = spark if format == "kafka" else [*spark, *reader.valid_names(keys.DLQ_FORMAT)]
        allowed = f"nothing together with {topic[0]}: dead letters have one destination"
    else:
        others = [*kafka, *reader.valid_names(keys.DLQ_CONVERTER)]
        allowed = f"nothing without {keys.DLQ_TOPIC.name}: it is for a Kafka topic"
    faults = [InvalidValue(name, reader.given[name], allowed) for name in others]
    reader.faults.extend(faults)


def _handlers(reader: SettingReader) -> dict[StageKind, object]:
    handlers = {
        StageKind.DESERIALIZE: reader.key(keys.DESERIALIZATION_HANDLER),
        StageKind.PROCESS: reader.key(keys.PROCESSING_HANDLER),
        StageKind.PRODUCE: reader.key(keys.PRODUCTION_HANDLER),
    }
    return {stage: handler for stage, handler in handlers.items() if handler is not None}
