"""The addresses of channels: a mail address, a web address, or an address of Apprise."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import msgspec
from django.conf import settings

from arrester.domain.errors import InvalidValue

WEBHOOK, MAIL = "webhook", "mail"
_ALLOWED = (
    "an https:// or http:// address of a webhook, or an address of Apprise"
    " such as slack://…, msteams://…, pagerduty://…, opsgenie://…"
    " (https://appriseit.com/services/)"
)
#: More permitted hosts are not in a hint.
_HINTS = 4
_MAIL_ADDRESS = re.compile(r"[^@\s:/?#]+@[A-Za-z0-9.-]+")
_MAIL_ALLOWED = "a mail address once ARRESTER_SMTP_URL is set, such as smtp://mail.example.com:587"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """An address, with its secrets; only `service` and `shown` may be shown."""

    service: str
    shown: str
    url: str
    #: The key that signs webhooks; empty for other services.
    key: str = ""


def sends_mail() -> bool:
    """Whether this server has a mail server."""
    return settings.ENVIRONMENT.smtp_url is not None


def allowed() -> str:
    """Return which addresses the configuration of this server allows, in words."""
    return f"a mail address, {_ALLOWED}" if sends_mail() else _ALLOWED


def hint() -> str:
    """Return examples of addresses that the configuration of this server allows."""
    permitted = settings.ENVIRONMENT.alert_hosts
    if permitted:
        return ", ".join(permitted[:_HINTS]) + (", …" if len(permitted) > _HINTS else "")
    mail = "ops@example.com, " if sends_mail() else ""
    return f"{mail}https://…, slack://…, pagerduty://…"


def parse(text: str) -> Address:
    """Return the address that a person entered; raise InvalidValue for an unusable one."""
    text = text.strip()
    check_host(text)
    if _MAIL_ADDRESS.fullmatch(text):
        return _mail(text)
    parts = _parts(text)
    service = _service(text)
    if service is not None:
        return Address(service=str(service.service_name), shown=_shown(text), url=text)
    if parts.scheme in ("http", "https") and parts.hostname:
        key = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
        return Address(service=WEBHOOK, shown=_shown(text), url=text, key=key)
    raise InvalidValue("address", _shown(text), allowed())


def check_host(text: str) -> None:
    """Raise InvalidValue for an address that ARRESTER_ALERT_HOSTS does not permit."""
    permitted = settings.ENVIRONMENT.alert_hosts
    if not permitted:
        return
    if _MAIL_ADDRESS.fullmatch(text):
        scheme, host = "", text.rpartition("@")[2].lower()
    else:
        parts = _parts(text)
        scheme, host = parts.scheme, parts.hostname or ""
    if not any(_permits(each, scheme, host) for each in permitted):
        allowed = f"an address that ARRESTER_ALERT_HOSTS permits: {', '.join(permitted)}"
        raise InvalidValue("address", _shown(text), allowed)


def _permits(entry: str, scheme: str, host: str) -> bool:
    """Return whether an entry permits an address: `host`, `*.domain`, or for services of Apprise,
    whose hosts are often tokens, `scheme://` or `scheme://host`."""
    wanted, mark, pattern = entry.rpartition("://")
    if scheme not in ((wanted,) if mark else ("", "http", "https")):
        return False
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern or bool(mark and not pattern)


def _parts(text: str) -> SplitResult:
    """Return the parts of an address; raise InvalidValue where libraries differ in its host."""
    try:
        parts = urlsplit(text)
        _ = parts.hostname, parts.port  # they raise ValueError
    except ValueError:
        raise InvalidValue("address", text[:60], allowed()) from None
    if "\\" in text or not text.isprintable():
        raise InvalidValue("address", _shown(text), allowed())
    return parts


def _mail(address: str) -> Address:
    smtp = settings.ENVIRONMENT.smtp_url
    if smtp is None:
        raise InvalidValue("address", address, _MAIL_ALLOWED)
    # The server is not stored: its password may change.
    return Address(service=MAIL, shown=address, url=address)


def mail_url(address: str, smtp_url: str, headers: Mapping[str, str]) -> str:
    """Return the address of Apprise for mail to `address` over an SMTP server, with headers."""
    parts = urlsplit(smtp_url)
    modes = {"smtp": "insecure", "smtp+starttls": "starttls", "smtps": "ssl"}
    given = dict(parse_qsl(parts.query))
    options = {
        "to": address,
        "from": given.get("from") or f"arrester@{parts.hostname}",
        "name": "Arrester",
        "mode": modes[parts.scheme],
        "smtp": parts.hostname or "",
        "format": "text",
    }
    login = ""
    if parts.username:
        # Name and password are encoded as they were given.
        login = f"{parts.username}:{parts.password or ''}@"
    port = f":{parts.port}" if parts.port else ""
    scheme = "mailto" if parts.scheme == "smtp" else "mailtos"
    query = urlencode({name: value for name, value in options.items() if value}, quote_via=quote)
    added = "".join(f"&+{name}={quote(value, safe='')}" for name, value in headers.items())
    return f"{scheme}://{login}{parts.hostname}{port}?{query}{added}"


def incident_url(url: str, incident: str) -> str:
    """Return the address with the identity of an incident, where the service has incidents.

    A later message of the same identity resolves it.
    """
    parts = urlsplit(url)
    names = {"pagerduty": ("action", "dedup"), "opsgenie": ("action", "alias")}.get(parts.scheme)
    if names is None:
        return url
    action, identity = names
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query = {action: "map", **query, identity: incident}
    return parts._replace(query=urlencode(query, quote_via=quote)).geturl()


def _service(text: str) -> Any:
    """Return the service of Apprise that an address belongs to, or None."""
    import apprise  # It needs 25 MB: only processes that send or check an address load it.

    try:
        return apprise.Apprise.instantiate(text, suppress_exceptions=True)
    except (TypeError, ValueError):
        return None


def _shown(text: str) -> str:
    """Return an address without what may be secret: user, password, path and query."""
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    if not parts.scheme or not host:
        return text[:60]
    if parts.scheme not in ("http", "https"):
        # Hosts of Apprise's addresses are often tokens.
        return f"{parts.scheme}://{host[:4]}…"
    return f"{parts.scheme}://{host}/…" if parts.path.strip("/") else f"{parts.scheme}://{host}"
