"""The agent's configuration, read once at the start; nobody else looks at the environment."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from agents import config_keys as keys
from agents.handlers import Handler
from controlplane.domain.errors import ArresterError, InvalidValue
from controlplane.domain.names import check_name

T = TypeVar("T")

REDIS_SCHEMES = ("redis", "rediss", "unix")


class InvalidConfiguration(InvalidValue):
    """One or more settings are wrong; `faults` has them all. Correct them and start again."""

    def __init__(self, faults: list[InvalidValue]) -> None:
        ArresterError.__init__(self, "\n".join(str(fault) for fault in faults))
        self.name, self.value, self.allowed = faults[0].name, faults[0].value, faults[0].allowed
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What an agent was told, checked as a whole; each field names its key or variable."""

    application: str
    #: REDIS_URL; None: the agent works alone and keeps its events.
    redis_url: str | None
    #: ARRESTER_SPOOL, a folder on a local disk, made when it is missing.
    spool_folder: Path
    #: spool.bytes.limit: above it failures are counted instead of described.
    spool_bytes: int
    #: errors.log.enable
    log_enable: bool
    #: errors.log.include.messages: whether a log line shows the record itself.
    log_include_messages: bool
    #: errors.dlq.enable
    dlq_enable: bool
    #: errors.dlq.format
    dlq_format: str
    #: errors.dlq.path, on any Hadoop file system; set whenever dead letters are on.
    dlq_path: str | None
    #: errors.redact: names and JSON paths of fields that never leave the driver.
    redact: tuple[str, ...]
    #: errors.examples.limit: failures described in full, per micro-batch and group.
    examples_limit: int
    #: held.chunk.records: how many held rows of a task run at a time after a resume.
    held_chunk_records: int
    #: error.shutdown.timeout.ms, in seconds: bounds any shutdown.
    shutdown_timeout_seconds: float
    #: deserialization.exception.handler; None means FAIL.
    deserialization_handler: Handler | None
    #: processing.exception.handler; None means FAIL.
    processing_handler: Handler | None

    @classmethod
    def read(
        cls,
        application: str,
        errors: Mapping[str, object],
        *,
        environment: Mapping[str, str] = os.environ,
    ) -> AgentConfig:
        """Return the configuration; raises InvalidConfiguration with every fault in it."""
        reader = _Reader(faults=_unknown(errors), values=_current_spellings(errors))
        config = cls(
            application=reader.application(application),
            redis_url=reader.redis_url(environment.get("REDIS_URL", "").strip()),
            spool_folder=reader.spool_folder(environment.get("ARRESTER_SPOOL", "").strip()),
            spool_bytes=reader.key(keys.SPOOL_BYTES),
            log_enable=reader.key(keys.LOG_ENABLE),
            log_include_messages=reader.key(keys.LOG_INCLUDE_MESSAGES),
            dlq_enable=reader.key(keys.DLQ_ENABLE),
            dlq_format=reader.key(keys.DLQ_FORMAT),
            dlq_path=reader.key(keys.DLQ_PATH),
            redact=reader.key(keys.REDACT),
            examples_limit=reader.key(keys.EXAMPLES_LIMIT),
            held_chunk_records=reader.key(keys.HELD_CHUNK_RECORDS),
            shutdown_timeout_seconds=reader.key(keys.SHUTDOWN_TIMEOUT_MS) / 1000,
            deserialization_handler=reader.key(keys.DESERIALIZATION_HANDLER),
            processing_handler=reader.key(keys.PROCESSING_HANDLER),
        )
        if config.dlq_enable and keys.DLQ_PATH.name not in reader.values:
            allowed = f"{keys.DLQ_PATH.allowed}, since {keys.DLQ_ENABLE.name} is true"
            reader.faults.append(InvalidValue(keys.DLQ_PATH.name, None, allowed))
        if reader.faults:
            raise InvalidConfiguration(reader.faults)
        return config


@dataclass(slots=True)
class _Reader:
    """Reads one value after the other and keeps what is wrong with them."""

    faults: list[InvalidValue]
    values: Mapping[str, object] = field(default_factory=dict)

    def key(self, key: keys.Key[T]) -> T:
        if key.name not in self.values:
            return key.default
        value = self.values[key.name]
        try:
            return key.parse(value)
        except ValueError:
            self.faults.append(InvalidValue(key.name, value, key.allowed))
            return key.default

    def application(self, name: str) -> str:
        try:
            return check_name("application", name)
        except InvalidValue as fault:
            self.faults.append(fault)
            return name

    def redis_url(self, text: str) -> str | None:
        if not text:
            return None
        try:
            parts = urlsplit(text)
            _ = parts.port  # raises for a port that is no number
            good = parts.scheme in REDIS_SCHEMES
        except ValueError:
            good = False
        if not good:
            allowed = "a URL that starts with redis://, rediss:// or unix://"
            self.faults.append(InvalidValue("REDIS_URL", _without_password(text), allowed))
        return text

    def spool_folder(self, text: str) -> Path:
        candidates = [Path(text).absolute()] if text else _default_spool_folders()
        for folder in candidates:
            # A stranger may have made the folder in /tmp: only our own will do there.
            if _is_writable(folder) and (text or folder.stat().st_uid == os.getuid()):
                return folder
        allowed = "a folder on a local disk that this process can write to"
        self.faults.append(InvalidValue("ARRESTER_SPOOL", str(candidates[-1]), allowed))
        return candidates[-1]


def _unknown(errors: Mapping[str, object]) -> list[InvalidValue]:
    known = f"one of the keys {', '.join(sorted(keys.KEYS))}"
    return [
        InvalidValue("errors", name, known)
        for name in errors
        if name not in keys.KEYS and name not in keys.OLD_SPELLINGS
    ]


def _current_spellings(errors: Mapping[str, object]) -> dict[str, object]:
    """Return `errors` with old spellings renamed; where both are given, today's wins."""
    renamed = {keys.OLD_SPELLINGS.get(name, name): value for name, value in errors.items()}
    return renamed | {name: value for name, value in errors.items() if name in keys.KEYS}


def _default_spool_folders() -> list[Path]:
    """Return where spools lie when nobody says: the user's state, else the temporary folder.

    A driver in a container often has no home that it may write to.
    """
    temporary = Path(tempfile.gettempdir()) / f"arrester-spool-{os.getuid()}"
    try:
        return [Path.home() / ".local" / "state" / "arrester" / "spool", temporary]
    except RuntimeError:  # a user without an entry, as clusters give them
        return [temporary]


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _without_password(url: str) -> str:
    """Return `url` fit to be shown: what stands before an @ may be a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('//')[0]}//…@{tail}" if at else url
