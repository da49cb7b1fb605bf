"""The agent's configuration, read once at the start. No other module reads the environment."""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from arrester.agents.error_policy.settings import ErrorSettings
from arrester.agents.handlers import Handler, check_handler
from arrester.agents.release import check_release, installed_release
from arrester.domain.error_policy import setting_definitions as keys
from arrester.domain.error_policy.policy import StageKind
from arrester.domain.error_policy.setting_types import CONVERTER_RULE, HANDLER_RULE
from arrester.domain.errors import InvalidConfiguration, InvalidValue
from arrester.domain.identity.names import check_name
from arrester.domain.wire import sealed_fields
from arrester.domain.wire.sealed_fields import MaskedFields
from arrester.domain.wire.signed_messages import SERVER_KEY, parse_keys

T = TypeVar("T")

REDIS_SCHEMES = ("redis", "rediss", "unix")
#: Names of settings whose values are never shown.
_SECRET = re.compile(
    r"password|passwd|passphrase|secret|token|credential|jaas|sasl\.|(^|[._-])(api)?key([._-]|$)",
    re.IGNORECASE,
)
#: The user information in a URL.
_USERINFO = re.compile(r"(?<=//)[^/@\s]+@")
#: Longer values are cut.
_VALUE_CHARACTERS = 1_000
#: The default handlers, by key.
_HANDLERS = {
    StageKind.DESERIALIZE: keys.DESERIALIZATION_HANDLER,
    StageKind.PROCESS: keys.PROCESSING_HANDLER,
    StageKind.PRODUCE: keys.PRODUCTION_HANDLER,
}


#: Settings of the agent that are no error settings, and their environment variables. Only the
#: configuration of Spark and the file have these keys.
REDIS_URL, SPOOL, SERVER_KEYS = "redis.url", "spool.folder", "server.key"
VERSION, SPARK_METRICS = "application.version", "spark.metrics.enable"
_VARIABLES = {
    REDIS_URL: "REDIS_URL",
    SPOOL: "ARRESTER_SPOOL",
    SERVER_KEYS: SERVER_KEY,
    VERSION: "ARRESTER_VERSION",
    SPARK_METRICS: "ARRESTER_SPARK_METRICS",
}


class ExternalSetting(NamedTuple):
    """A setting from the configuration of Spark, or from the properties file."""

    value: str
    #: The file or the key of Spark that it was read from, as errors show it.
    read_from: str


#: Settings by key, from one place.
SettingSource = Mapping[str, ExternalSetting]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The configuration of an agent, checked as a whole; comments name keys and variables."""

    application: str
    #: REDIS_URL; None: the agent works without a server and keeps its events.
    redis_url: str | None
    #: ARRESTER_SERVER_KEY, decoded; none: what the server sends is accepted without a signature.
    server_keys: tuple[bytes, ...]
    #: ARRESTER_SPOOL: a folder on a local disk, created if it is missing.
    spool_folder: Path
    #: The settings of the error handling.
    errors: ErrorSettings
    #: {deserialization,processing,production}.exception.handler, imported.
    handlers: Mapping[StageKind, Handler]
    #: ARRESTER_VERSION: the version of the application; None: unknown.
    release: str | None = None
    #: ARRESTER_SPARK_METRICS: whether the metrics of the agent are in Spark's metrics system.
    spark_metrics: bool = False
    #: The error settings as they were given, as texts, without secrets.
    shown: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        application: str,
        errors: Mapping[str, object],
        *,
        version: object = None,
        environment: Mapping[str, str] = os.environ,
        sources: Sequence[SettingSource] = (),
        other_faults: Sequence[InvalidValue] = (),
    ) -> AgentConfig:
        """Return the configuration; raises InvalidConfiguration with every fault in it.

        `version` precedes the setting, and that the one of the installed distribution.
        `errors` precedes `sources`, an earlier source a later one, and the sources the
        environment. `other_faults` are those of the agent's other arguments, reported together
        with these.
        """
        errors, own, places = _merge(errors, sources)
        own = {key: own.get(key, environment.get(name, "")) for key, name in _VARIABLES.items()}
        reader = _Reader()
        settings = reader.errors(errors)
        reader.check_converter(errors.get(keys.DLQ_CONVERTER.name))
        server_keys = reader.server_keys(own[SERVER_KEYS])
        if settings.reveal:
            reader.check_reveal(server_keys)
        config = cls(
            application=reader.application(application),
            redis_url=reader.redis_url(own[REDIS_URL].strip()),
            server_keys=server_keys,
            spool_folder=reader.spool_folder(own[SPOOL].strip()),
            errors=settings,
            handlers=reader.handlers(errors),
            release=reader.release(version, own[VERSION]),
            spark_metrics=reader.flag(SPARK_METRICS, own[SPARK_METRICS].strip()),
            shown=without_secrets(errors),
        )
        if faults := [*(_add_place(fault, places) for fault in reader.faults), *other_faults]:
            raise InvalidConfiguration(faults)
        return config

    @property
    def shutdown_timeout_seconds(self) -> float:
        """error.shutdown.timeout.ms in seconds: the limit of any shutdown."""
        return self.errors.shutdown_timeout_ms / 1000


def _merge(
    errors: Mapping[str, object], sources: Sequence[SettingSource]
) -> tuple[dict[str, object], dict[str, str], dict[str, str]]:
    """Return the error settings, the agent's own settings, and the places of both by key.

    A setting precedes the same one from a later source, in any of its spellings.
    """
    settings, own, places = dict(errors), dict[str, str](), dict[str, str]()
    for source in sources:
        known = {spelling for name in (*settings, *own) for spelling in keys.spellings(name)}
        for name, setting in source.items():
            if name in known:
                continue
            places[_VARIABLES.get(name, name)] = setting.read_from
            if name in _VARIABLES:
                own[name] = setting.value
            else:
                settings[name] = setting.value
    return settings, own, places


def _add_place(fault: InvalidValue, places: Mapping[str, str]) -> InvalidValue:
    """Return a fault with the place of its setting. An unknown key is the value of its fault."""
    place = places.get(fault.name) or places.get(str(fault.value))
    if place is None:
        return fault
    allowed = fault.allowed
    if fault.name not in places:
        allowed += "".join(f", {key}" for key in _VARIABLES)
    return InvalidValue(fault.name, fault.value, allowed, read_from=place)


@dataclass(slots=True)
class _Reader:
    """Read the values one after the other, and collect their faults."""

    faults: list[InvalidValue] = field(default_factory=list)

    def errors(self, given: Mapping[str, object]) -> ErrorSettings:
        try:
            settings = ErrorSettings.read(given)
        except InvalidConfiguration as exc:
            self.faults += exc.faults
            settings = ErrorSettings.read({})
        return settings

    def handlers(self, given: Mapping[str, object]) -> dict[StageKind, Handler]:
        handlers: dict[StageKind, Handler] = {}
        for stage, key in _HANDLERS.items():
            name = key.name if key.name in given else str(key.former_name)
            if name in given:
                handler = self._load(name, given[name], HANDLER_RULE, check_handler)
                if handler is not None:
                    handlers[stage] = handler
        return handlers

    def check_converter(self, path: object) -> None:
        """Load the converter now. Otherwise the first dead letter would fail because of it."""

        def check(name: str, converter: object) -> object:
            if not callable(getattr(converter, "convert", converter)):
                raise InvalidValue(name, path, CONVERTER_RULE)
            return converter

        if path is not None and str(path).strip():
            self._load(keys.DLQ_CONVERTER.name, path, CONVERTER_RULE, check)

    def _load(
        self, name: str, given: object, rule: str, check: Callable[[str, object], T]
    ) -> T | None:
        """Return the checked object at a path, None if it is invalid."""
        if name in {fault.name for fault in self.faults}:
            return None
        try:
            return check(name, load_object(given))
        except InvalidValue as fault:
            self.faults.append(fault)
        except Exception as exc:  # its module, or its class, may raise anything
            allowed = f"{rule} ({type(exc).__name__}: {exc})"
            self.faults.append(InvalidValue(name, given, allowed))
        return None

    def application(self, name: str) -> str:
        try:
            return check_name("application", name)
        except InvalidValue as fault:
            self.faults.append(fault)
            return name

    def release(self, given: object, text: str) -> str | None:
        try:
            if given is not None:
                return check_release("version", given)
            return check_release("ARRESTER_VERSION", text) if text else installed_release()
        except InvalidValue as fault:
            self.faults.append(fault)
            return None

    def flag(self, key: str, text: str) -> bool:
        if text.lower() not in ("", "false", "true"):
            self.faults.append(InvalidValue(_VARIABLES[key], text, "true or false"))
        return text.lower() == "true"

    def redis_url(self, text: str) -> str | None:
        if not text:
            return None
        try:
            parts = urlsplit(text)
            _ = parts.port  # raises for a port that is no number
            is_valid = parts.scheme in REDIS_SCHEMES
        except ValueError:
            is_valid = False
        if not is_valid:
            allowed = "a URL that starts with redis://, rediss:// or unix://"
            self.faults.append(InvalidValue("REDIS_URL", _without_password(text), allowed))
        return text

    def server_keys(self, text: str) -> tuple[bytes, ...]:
        try:
            keys = parse_keys(text)
            if keys and find_spec("cryptography") is None:
                allowed = "no key, without the package cryptography: pip install 'arrester[agents]'"
                raise InvalidValue(SERVER_KEY, text, allowed)
        except InvalidValue as fault:
            self.faults.append(fault)
            return ()
        return keys

    def check_reveal(self, server_keys: Sequence[bytes]) -> None:
        """Report that masked fields cannot be encrypted to the server."""
        try:
            if not server_keys:
                raise ValueError("no key")
            sealed_fields.seal(MaskedFields(), application="", server_key=server_keys[-1])
        except ValueError:
            allowed = f"false, unless {SERVER_KEY} is the public key that masked fields are for"
            self.faults.append(InvalidValue(keys.REDACT_REVEAL.name, True, allowed))

    def spool_folder(self, text: str) -> Path:
        candidates = [Path(text).absolute()] if text else _default_spool_folders()
        for folder in candidates:
            # Another user may have created the folder in /tmp, so a default folder must be our own.
            if _is_writable(folder) and (text or folder.stat().st_uid == os.getuid()):
                return folder
        allowed = "a folder on a local disk that this process can write to"
        self.faults.append(InvalidValue("ARRESTER_SPOOL", str(candidates[-1]), allowed))
        return candidates[-1]


def without_secrets(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings as texts, without those with a secret-looking name, and without
    user:password@.

    Only names decide: a secret under another name is shown.
    """
    return {
        name: _USERINFO.sub("…@", str(value))[:_VALUE_CHARACTERS]
        for name, value in settings.items()
        if _SECRET.search(name) is None
    }


def load_object(given: object) -> object:
    """Return the object at a dotted path; for a class, an instance of it."""
    if isinstance(given, str):
        module, _, name = given.strip().rpartition(".")
        given = getattr(importlib.import_module(module), name)
    return given() if isinstance(given, type) else given


def dotted_path(value: object) -> str:
    """Return the dotted path of a function, or of an object's class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', '?')}"


def _default_spool_folders() -> list[Path]:
    """Return the default spool folders: the user's state folder, then the temporary folder.

    In a container a driver often has no writable home.
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
    """Return `url` without user information: the text before an @ may be a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('//')[0]}//…@{tail}" if at else url
