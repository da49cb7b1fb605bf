"""Send one message to one channel, over the network."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings

from arrester.controlplane import models
from arrester.controlplane.alerts import addresses, encryption
from arrester.controlplane.alerts.text import MessageKind, MessageText, body
from arrester.controlplane.alerts.time_limit import limited
from arrester.domain.errors import InvalidValue

#: The time to connect, and to wait for each part of an answer.
TIMEOUT_SECONDS = 8.0
#: The longest attempt of a webhook, and of another channel: a mail takes several requests and
#: answers. A channel is leased for longer.
WEBHOOK_SECONDS, CHANNEL_SECONDS = 10.0, 30.0
#: The most characters of the reason of a failure.
_REASON_MAX = 300
#: With this text, Apprise logs what a mail server answered.
_ANSWER = "Socket Exception: "
#: The places where markup is broken: after `@` and `<`, and between the brackets of a link.
_MARKUP = re.compile(r"(?<=[@<])|(?<=\])(?=[(\[:])")
#: The text before each record of Apprise's log: a record may have several lines.
_RECORD = "\0"


class NotSent(Exception):
    """A channel did not accept a message; the text is the reason."""


class ChannelSecret(msgspec.Struct, frozen=True, kw_only=True):
    """The encrypted part of a channel: its address, and the key that signs webhooks."""

    url: str
    key: str = ""


def encrypt_address(address: addresses.Address) -> bytes:
    """Return the encrypted part of an address."""
    secret = ChannelSecret(url=address.url, key=address.key)
    return encryption.encrypt(msgspec.json.encode(secret).decode())


def _decrypt_address(channel: models.AlertChannel) -> ChannelSecret:
    """Return the address and key of a channel; raise Undecipherable."""
    return msgspec.json.decode(encryption.decrypt(bytes(channel.secret)), type=ChannelSecret)


def _permitted(channel: models.AlertChannel) -> ChannelSecret:
    """Return the address and key of a channel; raise NotSent if its host is not permitted."""
    secret = _decrypt_address(channel)
    try:
        addresses.check_host(secret.url)
    except InvalidValue as error:
        raise NotSent(str(error)) from None
    return secret


def send(
    channel: models.AlertChannel, id: UUID, incident: UUID, message: MessageText, *, now: datetime
) -> None:
    """Send a message. `incident` is the id of the first one that the channel got about its alerts.

    Raises:
        NotSent: with the reason, if the channel did not accept it.
        AttemptTooLong: the channel did not answer in time.
        Undecipherable: the address cannot be read.
    """
    secret = _permitted(channel)
    if channel.service == addresses.WEBHOOK:
        with limited(WEBHOOK_SECONDS):
            _post(secret, id, _content(id, incident, message, now), now)
        return
    url = secret.url
    if channel.service == addresses.MAIL:
        smtp = settings.ENVIRONMENT.smtp_url
        if smtp is None:
            raise NotSent("ARRESTER_SMTP_URL is not set")
        url = addresses.mail_url(url, smtp, _headers(message, is_first=id == incident, of=incident))
        escape: Callable[[str], str] = str
    else:
        url, escape = addresses.incident_url(url, str(incident)), plain
    with limited(CHANNEL_SECONDS):
        _notify(url, message, escape=escape)


def _headers(message: MessageText, *, is_first: bool, of: UUID) -> dict[str, str]:
    """Return the headers of a mail: no vacation reply (RFC 3834), one thread for an incident, and
    the importance."""
    thread = f"<{of}@arrester>"
    return {
        "Auto-Submitted": "auto-generated",
        "References": thread,
        **({} if is_first else {"In-Reply-To": thread}),
        **({"Importance": "high"} if _type(message) == "failure" else {}),
    }


def _content(id: UUID, incident: UUID, message: MessageText, now: datetime) -> bytes:
    """Return the body of a webhook about alerts."""
    data = {"id": str(id), "incident": str(incident), **msgspec.to_builtins(message)}
    kind = f"alerts.{message.kind.value.lower()}"
    return msgspec.json.encode({"type": kind, "timestamp": now, "data": data})


def post_events(channel: models.AlertChannel, id: UUID, content: bytes, *, now: datetime) -> None:
    """Send events of the log to the webhook of a subscription; raises as `send` does."""
    with limited(WEBHOOK_SECONDS):
        _post(_permitted(channel), id, content, now)


def _post(secret: ChannelSecret, id: UUID, content: bytes, now: datetime) -> None:
    """Post a message, signed as Standard Webhooks describes (standardwebhooks.com)."""
    import requests

    headers = {
        "Content-Type": "application/json",
        "User-Agent": "arrester",
        "webhook-id": str(id),
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature(secret.key, str(id), int(now.timestamp()), content),
    }
    try:
        # The status is the answer: a body may be endless.
        with requests.post(
            secret.url,
            data=content,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            allow_redirects=False,
            stream=True,
        ) as response:
            pass
    except requests.RequestException as exc:
        # Its own text has the address, which may have secrets.
        cause = getattr(exc.args[0] if exc.args else None, "reason", None) or exc
        raise NotSent(f"request failed: {type(cause).__name__}") from None
    if not 200 <= response.status_code < 300:
        raise NotSent(f"answered {response.status_code} {response.reason or ''}".rstrip())


def signature(key: str, id: str, timestamp: int, content: bytes) -> str:
    """Return the value of the header `webhook-signature`."""
    secret = base64.b64decode(key.removeprefix("whsec_"))
    signed = f"{id}.{timestamp}.".encode() + content
    digest = hmac.new(secret, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def plain(text: str) -> str:
    """Return a text without mentions and links of chat services, such as `@here`, `<!channel>`,
    `<https://example.com|text>` and `[text](https://example.com)`.

    A space of no width is put where the text would become one.
    """
    return _MARKUP.sub("\u200b", text)


def _notify(url: str, message: MessageText, *, escape: Callable[[str], str]) -> None:
    """Send a message by Apprise, whose log has the reason of a failure."""
    import apprise

    # Opsgenie closes an alert by the id that its first message was answered with.
    folder = settings.ENVIRONMENT.home / "apprise"
    asset = apprise.AppriseAsset(
        app_id="Arrester",
        app_desc="Arrester",
        storage_path=str(folder),
        storage_mode=apprise.PersistentStoreMode.FLUSH,
    )
    service = apprise.Apprise(asset=asset)
    # `add` would split a text at commas and spaces into several addresses.
    target: Any = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if target is None or not service.add(target):
        raise NotSent("Apprise does not accept the address")
    # Set here and not in the query of the address, which may have other values.
    target.redirects = False
    target.socket_connect_timeout = target.socket_read_timeout = TIMEOUT_SECONDS
    capture: Any = apprise.LogCapture
    # Only its debug log has what a mail server answered; that of other services may have secrets.
    level = logging.DEBUG if url.startswith("mailto") else logging.WARNING
    with capture(level=level, fmt=f"{_RECORD}%(levelname)s %(message)s") as lines:
        accepted = service.notify(
            title=escape(message.title),
            body=escape(body(message) or message.title),
            notify_type=_type(message),
            body_format=apprise.NotifyFormat.TEXT,
        )
        reason = _reason(lines.getvalue().split(_RECORD))
    if not accepted:
        raise NotSent(reason[:_REASON_MAX] or "the service did not accept the message")


def _reason(records: Sequence[str]) -> str:
    """Return the warnings of Apprise, and what the server of a failed mail answered."""
    kept = []
    for record in records:
        level, _, text = record.partition(" ")
        if level in ("WARNING", "ERROR", "CRITICAL"):
            kept.append(text)
        elif text.startswith(_ANSWER):
            kept.append(text.removeprefix(_ANSWER))
    return " ".join(" ".join(kept).split())


def _type(message: MessageText) -> str:
    if message.kind is MessageKind.RESOLVED:
        return "success"
    if message.kind is MessageKind.TEST:
        return "info"
    return "failure" if any(each.critical for each in message.alerts) else "warning"
