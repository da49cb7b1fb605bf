"""Read and validate the environment variables of the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from arrester.controlplane import quotas
from arrester.controlplane.access.roles import Role
from arrester.controlplane.object_stores import is_plain, store_address
from arrester.controlplane.quotas import Quotas
from arrester.domain.errors import InvalidValue
from arrester.domain.identity.names import check_name

POSTGRES_SCHEMES = ("postgresql", "postgres")
REDIS_SCHEMES = ("redis", "rediss", "unix")
HTTP_SCHEMES = ("http", "https")
SMTP_SCHEMES = ("smtp", "smtps", "smtp+starttls")
DEFAULT_OIDC_ROLES = "viewer=arrester-viewer,operator=arrester-operator,admin=arrester-admin"
_HOST = re.compile(r"[a-z][a-z0-9+.-]*://|([a-z][a-z0-9+.-]*://)?(\*\.)?[a-z0-9_.-]+")
REVEALERS = (Role.ADMIN.value, Role.OPERATOR.value)
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class InvalidSetting(SystemExit):
    """An environment variable has a value that is not allowed.

    It is a SystemExit, so every process that reads the settings ends with one line, no traceback.
    """

    def __init__(self, name: str, value: str, allowed: str) -> None:
        super().__init__(f"{name}={value!r} is not allowed: {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOn:
    """The OpenID Connect provider of single sign-on."""

    issuer: str
    client_id: str
    client_secret: str
    #: The claim that gives the role, and its values by role.
    claim: str
    roles: tuple[tuple[Role, str], ...]
    #: Its values by role and application.
    application_roles: tuple[tuple[Role, str, str], ...] = ()

    def __repr__(self) -> str:
        return f"SignOn(issuer={self.issuer!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment variables of the server; docs/reference/server.md lists them."""

    home: Path
    port: int
    #: The address of the dashboard, for links in messages.
    url: str
    smtp_url: str | None
    #: The hosts of alert channels; empty: all.
    alert_hosts: list[str]
    database_url: str | None
    migrate_database_url: str | None
    redis_url: str | None
    #: Redis as drivers reach it, for the URLs of agents' credentials.
    agent_redis_url: str | None
    broker_url: str | None
    secret_key: str | None
    #: Former secret keys, to verify the entries of the audit that they authenticate.
    old_secret_keys: tuple[str, ...]
    debug: bool
    https: bool
    proxies: int
    #: The least role that may reveal masked fields: admin or operator.
    reveal: Role
    #: The provider of single sign-on; None: passwords only.
    sign_on: SignOn | None
    allowed_hosts: list[str]
    session_hours: int
    trusted_origins: list[str]
    log_level: str
    command_expiry_seconds: int
    retention_days: int
    #: 0: only the age limits the log.
    retention_gigabytes: int
    replay_days: int
    overload_seconds: int
    overload_batches: int
    quotas: Quotas
    #: Folders of dead letters that workers may read, without a slash at the end.
    dead_letter_roots: list[str]
    #: Kafka topics of dead letters that workers may read, with the properties of their consumers.
    dead_letter_topics: dict[str, dict[str, str]]
    #: Names and patterns of fields that are masked in records read there.
    dead_letter_redact: list[str]

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Environment:
        """Return the settings in `variables`.

        Raises:
            InvalidSetting: for the first value that is not allowed.
        """
        port = _integer(variables, "ARRESTER_PORT", 8000, minimum=1, maximum=65535)
        return cls(
            home=Path(variables.get("ARRESTER_HOME") or ".arrester").absolute(),
            port=port,
            url=(
                _url(variables, "ARRESTER_URL", HTTP_SCHEMES) or f"http://127.0.0.1:{port}"
            ).rstrip("/"),
            smtp_url=_url(variables, "ARRESTER_SMTP_URL", SMTP_SCHEMES),
            alert_hosts=_hosts(variables, "ARRESTER_ALERT_HOSTS"),
            database_url=_url(variables, "DATABASE_URL", POSTGRES_SCHEMES),
            migrate_database_url=_url(variables, "MIGRATE_DATABASE_URL", POSTGRES_SCHEMES),
            redis_url=_url(variables, "REDIS_URL", REDIS_SCHEMES),
            agent_redis_url=_url(variables, "ARRESTER_AGENT_REDIS_URL", REDIS_SCHEMES),
            broker_url=_url(variables, "ARRESTER_BROKER_URL", REDIS_SCHEMES),
            secret_key=_secret(variables, "ARRESTER_SECRET_KEY"),
            old_secret_keys=_secrets(variables, "ARRESTER_OLD_SECRET_KEYS"),
            debug=_flag(variables, "ARRESTER_DEBUG"),
            https=_flag(variables, "ARRESTER_HTTPS"),
            sign_on=_sign_on(variables),
            proxies=_integer(variables, "ARRESTER_PROXIES", 0, minimum=0, maximum=9),
            reveal=Role(_choice(variables, "ARRESTER_REVEAL", "admin", REVEALERS)),
            allowed_hosts=_list(variables, "ARRESTER_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]"),
            trusted_origins=_list(variables, "ARRESTER_TRUSTED_ORIGINS", ""),
            session_hours=_integer(variables, "ARRESTER_SESSION_HOURS", 12, maximum=8760),
            log_level=_choice(variables, "ARRESTER_LOG_LEVEL", "INFO", LOG_LEVELS),
            command_expiry_seconds=_integer(variables, "ARRESTER_COMMAND_EXPIRY_SECONDS", 900),
            retention_days=_integer(variables, "ARRESTER_RETENTION_DAYS", 30),
            retention_gigabytes=_integer(variables, "ARRESTER_RETENTION_GB", 0, minimum=0),
            replay_days=_integer(variables, "ARRESTER_REPLAY_DAYS", 30),
            overload_seconds=_integer(variables, "ARRESTER_OVERLOAD_SECONDS", 30),
            overload_batches=_integer(variables, "ARRESTER_OVERLOAD_BATCHES", 2000),
            quotas=_quotas(variables, "ARRESTER_QUOTAS"),
            dead_letter_roots=_folders(variables, "ARRESTER_DEAD_LETTERS_ROOTS"),
            dead_letter_topics=_topics(variables, "ARRESTER_DEAD_LETTERS_KAFKA"),
            dead_letter_redact=_list(variables, "ARRESTER_DEAD_LETTERS_REDACT", ""),
        )


def _integer(
    variables: Mapping[str, str], name: str, default: int, *, minimum: int = 1, maximum: int = 10**9
) -> int:
    text = variables.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not minimum <= int(text) <= maximum:
        raise InvalidSetting(name, text, f"an integer from {minimum} to {maximum}")
    return int(text)


def _quotas(variables: Mapping[str, str], name: str) -> Quotas:
    text = variables.get(name, "")
    try:
        return quotas.parse(text)
    except InvalidValue as error:
        raise InvalidSetting(name, text, error.allowed) from None


def _flag(variables: Mapping[str, str], name: str) -> bool:
    return _choice(variables, name, "0", ("0", "1")) == "1"


def _choice(variables: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    text = variables.get(name, "").strip() or default
    if text not in allowed:
        raise InvalidSetting(name, text, f"one of {', '.join(allowed)}")
    return text


def _list(variables: Mapping[str, str], name: str, default: str) -> list[str]:
    return [item.strip() for item in variables.get(name, default).split(",") if item.strip()]


def _hosts(variables: Mapping[str, str], name: str) -> list[str]:
    hosts = [each.lower() for each in _list(variables, name, "")]
    for each in hosts:
        if not _HOST.fullmatch(each):
            allowed = (
                "hosts such as hooks.example.com or *.example.com, or schemes of Apprise such as"
                " slack:// or mattermost://chat.example.com, separated by commas"
            )
            raise InvalidSetting(name, each, allowed)
    return hosts


def _folders(variables: Mapping[str, str], name: str) -> list[str]:
    allowed = (
        "absolute paths of folders, or addresses in object stores such as s3a://bucket/folder,"
        " separated by commas"
    )
    folders = []
    for text in _list(variables, name, ""):
        place, _, options = text.partition("?")
        folder, address = place.rstrip("/"), store_address(place.rstrip("/"))
        is_path = folder.startswith("/") and not options
        if not is_plain(folder) or not (is_path or address):
            raise InvalidSetting(name, text, allowed)
        folders.append("?".join(part for part in (address or folder, options) if part))
    return folders


def _topics(variables: Mapping[str, str], name: str) -> dict[str, dict[str, str]]:
    text = variables.get(name, "").strip()
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, str]]) if text else {}
    except msgspec.MsgspecError as error:
        allowed = (
            "a JSON object of topics, each with the properties of its consumer as texts, as in"
            f' {{"flights-dead-letters": {{"bootstrap.servers": "kafka:9092"}}}} ({error})'
        )
        # Properties may have passwords.
        raise InvalidSetting(name, "…", allowed) from None


def _sign_on(variables: Mapping[str, str]) -> SignOn | None:
    issuer = _url(variables, "ARRESTER_OIDC_ISSUER", HTTP_SCHEMES)
    if issuer is None:
        return None
    needed = {
        "ARRESTER_OIDC_CLIENT_ID": "the client that the provider has registered",
        "ARRESTER_OIDC_CLIENT_SECRET": "the secret of the client",
    }
    given = {name: variables.get(name, "").strip() for name in needed}
    for name, allowed in needed.items():
        if not given[name]:
            raise InvalidSetting(name, "", allowed)
    roles = _list(variables, "ARRESTER_OIDC_ROLES", DEFAULT_OIDC_ROLES)
    found = [_mapped_role(each) for each in roles]
    if not found or None in found:
        allowed = (
            "viewer=VALUE, operator=VALUE and admin=VALUE, also of one application, as in"
            " operator@movies=VALUE, separated by commas"
        )
        raise InvalidSetting("ARRESTER_OIDC_ROLES", variables["ARRESTER_OIDC_ROLES"], allowed)
    mapped = [each for each in found if each is not None]
    return SignOn(
        issuer=issuer,
        client_id=given["ARRESTER_OIDC_CLIENT_ID"],
        client_secret=given["ARRESTER_OIDC_CLIENT_SECRET"],
        claim=variables.get("ARRESTER_OIDC_CLAIM", "").strip() or "groups",
        roles=tuple((role, value) for role, name, value in mapped if not name),
        application_roles=tuple(each for each in mapped if each[1]),
    )


def _mapped_role(text: str) -> tuple[Role, str, str] | None:
    """Return role, application and value of `operator@movies=team-movies`; None: not allowed.

    Without an application it is empty.
    """
    key, _, value = text.partition("=")
    role, at, application = key.partition("@")
    try:
        if at:
            check_name("application", application)
    except InvalidValue:
        return None
    return (Role(role), application, value) if role in list(Role) and value else None


def _secret(variables: Mapping[str, str], name: str) -> str | None:
    text = variables.get(name, "")
    if text and len(text) < 32:
        raise InvalidSetting(name, "…", "at least 32 random characters")
    return text or None


def _secrets(variables: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(
        each for text in _list(variables, name, "") if (each := _secret({name: text}, name))
    )


def _url(variables: Mapping[str, str], name: str, schemes: tuple[str, ...]) -> str | None:
    text = variables.get(name, "").strip()
    if not text:
        return None
    allowed = f"a URL that starts with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    try:
        parts = urlsplit(text)
        # PostgreSQL accepts several hosts, one of which is the primary.
        several = schemes == POSTGRES_SCHEMES
        places = parts.netloc.rpartition("@")[2]
        for place in places.split(",") if several else [places]:
            _ = urlsplit(f"//{place}").port  # raises ValueError unless it is a number
    except ValueError as error:
        raise InvalidSetting(name, _without_password(text), f"{allowed} ({error})") from None
    if parts.scheme not in schemes:
        raise InvalidSetting(name, _without_password(text), allowed)
    return text


def _without_password(url: str) -> str:
    """Return `url` without the part before the @, which may contain a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('//')[0]}//…@{tail}" if at else url
