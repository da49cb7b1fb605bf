"""The environment, read once into something typed; a wrong value stops the start in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

POSTGRES_SCHEMES = ("postgresql", "postgres")
REDIS_SCHEMES = ("redis", "rediss", "unix")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
REPOSITORY = Path(__file__).resolve().parent.parent


class WrongSetting(SystemExit):
    """A variable has a value that it must not have; correct it and start again.

    As a SystemExit it ends any process that reads the settings with its one line, no traceback.
    """

    def __init__(self, name: str, value: str, allowed: str) -> None:
        super().__init__(f"{name}={value!r} is not allowed: {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Every variable that the server reads; `README.md` has the same list as a table."""

    home: Path
    port: int
    database_url: str | None
    migrate_database_url: str | None
    redis_url: str | None
    secret_key: str | None
    debug: bool
    https: bool
    allowed_hosts: list[str]
    trusted_origins: list[str]
    log_level: str
    command_expiry_seconds: int
    retention_days: int
    replay_days: int
    overload_seconds: int
    overload_batches: int

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Environment:
        """Return the settings in `variables`; raise WrongSetting for the first bad one."""
        return cls(
            home=Path(variables.get("ARRESTER_HOME") or REPOSITORY / ".arrester").absolute(),
            port=_whole(variables, "ARRESTER_PORT", 8000, least=1, most=65535),
            database_url=_url(variables, "DATABASE_URL", POSTGRES_SCHEMES),
            migrate_database_url=_url(variables, "MIGRATE_DATABASE_URL", POSTGRES_SCHEMES),
            redis_url=_url(variables, "REDIS_URL", REDIS_SCHEMES),
            secret_key=_secret(variables, "ARRESTER_SECRET_KEY"),
            debug=_flag(variables, "ARRESTER_DEBUG"),
            https=_flag(variables, "ARRESTER_HTTPS"),
            allowed_hosts=_words(variables, "ARRESTER_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]"),
            trusted_origins=_words(variables, "ARRESTER_TRUSTED_ORIGINS", ""),
            log_level=_choice(variables, "ARRESTER_LOG_LEVEL", "INFO", LOG_LEVELS),
            command_expiry_seconds=_whole(variables, "ARRESTER_COMMAND_EXPIRY_SECONDS", 900),
            retention_days=_whole(variables, "ARRESTER_RETENTION_DAYS", 30),
            replay_days=_whole(variables, "ARRESTER_REPLAY_DAYS", 30),
            overload_seconds=_whole(variables, "ARRESTER_OVERLOAD_SECONDS", 30),
            overload_batches=_whole(variables, "ARRESTER_OVERLOAD_BATCHES", 2000),
        )


def _whole(
    variables: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int = 10**9
) -> int:
    text = variables.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not least <= int(text) <= most:
        raise WrongSetting(name, text, f"a whole number from {least} to {most}")
    return int(text)


def _flag(variables: Mapping[str, str], name: str) -> bool:
    return _choice(variables, name, "0", ("0", "1")) == "1"


def _choice(variables: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    text = variables.get(name, "").strip() or default
    if text not in allowed:
        raise WrongSetting(name, text, f"one of {', '.join(allowed)}")
    return text


def _words(variables: Mapping[str, str], name: str, default: str) -> list[str]:
    return [word.strip() for word in variables.get(name, default).split(",") if word.strip()]


def _secret(variables: Mapping[str, str], name: str) -> str | None:
    text = variables.get(name, "")
    if text and len(text) < 32:
        raise WrongSetting(name, "…", "at least 32 random characters")
    return text or None


def _url(variables: Mapping[str, str], name: str, schemes: tuple[str, ...]) -> str | None:
    text = variables.get(name, "").strip()
    if not text:
        return None
    allowed = f"a URL that starts with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises for a port that is no number
    except ValueError as error:
        raise WrongSetting(name, _without_password(text), f"{allowed} ({error})") from None
    if parts.scheme not in schemes:
        raise WrongSetting(name, _without_password(text), allowed)
    return text


def _without_password(url: str) -> str:
    """Return `url` fit to be shown: what stands before an @ may be a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('//')[0]}//…@{tail}" if at else url
