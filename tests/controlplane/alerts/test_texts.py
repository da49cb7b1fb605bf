"""What applications put into texts of messages, and where messages may go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from arrester.controlplane.alerts import addresses, sending
from arrester.controlplane.alerts.text import MessageKind, compose
from arrester.controlplane.models import Alert, AlertChannel
from arrester.domain.errors import InvalidValue
from tests.controlplane.alerts.receivers import Mailbox, Receiver

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MENTIONS = (
    "@here @channel <!channel> <@U1> <https://evil.example|text> [text](https://evil.example)"
)


def alert(title: str, detail: str = "") -> Alert:
    return Alert(
        id=1, cause="ERROR_NEW", critical=False, application="movies", title=title, detail=detail,
        count=1, since=NOW, resolved_at=None, path="/errors",
    )  # fmt: skip


def sent(address: str, title: str, detail: str = "") -> None:
    """Send a message to a new channel."""
    parsed = addresses.parse(address)
    channel = AlertChannel(name="c", service=parsed.service, secret=sending.encrypt_address(parsed))
    message = compose(MessageKind.FIRED, [alert(title, detail)])
    id = uuid4()
    sending.send(channel, id, id, message, now=NOW)


def test_texts_have_no_lines_and_no_directions_of_their_own() -> None:
    message = compose(
        MessageKind.FIRED, [alert("pay \u202e001\x1b[31m", "a\r\n\r\nResolved: b\x00")]
    )
    assert message.title == message.alerts[0].title == r"pay \u202e001\u001b[31m"
    assert message.alerts[0].detail == r"a Resolved: b\u0000"
    two = compose(MessageKind.FIRED, [alert("\u2066"), alert("\u2067")])
    assert [each.title for each in two.alerts] == [r"\u2066", r"\u2067"]


@pytest.mark.parametrize(
    "text", [MENTIONS, "x@everyone", "<@&1>", "[a][b] [b]: https://evil.example"]
)
def test_a_text_has_no_mentions_and_no_hidden_links(text: str) -> None:
    shown = sending.plain(text)
    assert shown.replace("\u200b", "") == text
    for mark in ("@h", "@c", "@e", "@U", "@&", "<!", "<@", "<h", "](", "][", "]:"):
        assert mark not in shown


def test_a_chat_receives_no_mentions(receiver: Receiver) -> None:
    host = receiver.url.removeprefix("http://").removesuffix("/hook")
    sent(f"mmost://{host}/token", f"title {MENTIONS}", f"detail {MENTIONS}")
    [request] = receiver.requests
    text = json.loads(request.content)["text"]
    assert "here" in text and "channel" in text
    for mark in ("@here", "@channel", "<!", "<@", "<https", "]("):
        assert mark not in text


def test_mails_and_webhooks_keep_the_text(receiver: Receiver, mailbox: Mailbox) -> None:
    sent("ops@example.com", MENTIONS)
    sent(receiver.url, MENTIONS)
    assert mailbox.messages[0]["Subject"] == MENTIONS
    assert json.loads(receiver.requests[0].content)["data"]["title"] == MENTIONS


PERMITTED = ["hooks.example", "*.corp.example", "slack://", "mmost://chat.example", "example.com"]
SLACK = "//T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"


@pytest.fixture
def permitted(settings: Any) -> Sequence[str]:
    """Let channels have only some hosts, and mails be possible."""
    settings.ENVIRONMENT = replace(
        settings.ENVIRONMENT, alert_hosts=PERMITTED, smtp_url="smtp://mail.example"
    )
    return PERMITTED


@pytest.mark.parametrize(
    "address",
    [
        "https://hooks.example/a",
        "https://Hooks.Example:8443/a",
        "http://a.b.corp.example",
        f"slack:{SLACK}",
        "mmost://chat.example/token",
        "ops@example.com",
    ],
)
def test_a_permitted_address_is_accepted(permitted: Sequence[str], address: str) -> None:
    assert addresses.parse(address).url == address


@pytest.mark.parametrize(
    "address",
    [
        "https://169.254.169.254/latest",
        "https://hooks.example.evil.example",
        "https://corp.example",
        "https://evil.example#@hooks.example",
        "https://evil.example/?@hooks.example",
        "https://hooks.example@evil.example",
        "http://evil.example\\@hooks.example",
        "json://hooks.example",
        "mmost://127.0.0.1/token",
        "discord://hooks.example/token",
        "ops@evil.example",
        "mailto://user:password@example.com",
    ],
)
def test_an_address_of_another_host_is_refused(permitted: Sequence[str], address: str) -> None:
    with pytest.raises(InvalidValue) as error:
        addresses.parse(address)
    if "\\" not in address:
        assert "ARRESTER_ALERT_HOSTS permits: hooks.example, *.corp.example" in str(error.value)


def test_examples_of_addresses_fit_the_configuration(settings: Any) -> None:
    given = settings.ENVIRONMENT
    settings.ENVIRONMENT = replace(given, smtp_url=None, alert_hosts=[])
    assert addresses.hint() == "https://…, slack://…, pagerduty://…"
    with pytest.raises(InvalidValue, match="allowed: an https:// or http:// address"):
        addresses.parse("no address")
    settings.ENVIRONMENT = replace(given, smtp_url="smtp://mail.example", alert_hosts=[])
    assert addresses.hint().startswith("ops@example.com, https://…")
    with pytest.raises(InvalidValue, match="allowed: a mail address, an https:// or"):
        addresses.parse("no address")
    settings.ENVIRONMENT = replace(given, alert_hosts=PERMITTED)
    assert addresses.hint() == "hooks.example, *.corp.example, slack://, mmost://chat.example, …"


def test_the_log_of_the_server_has_nothing_of_apprise() -> None:
    """It logs an error for the address of each webhook, which is none of its services."""
    code = """
import django

django.setup()
from arrester.controlplane.alerts import addresses

print(addresses.parse("http://127.0.0.1:9/hook").service)
"""
    variables = {"DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("webhook\n", "")


def test_libraries_agree_on_the_host_of_an_address() -> None:
    for address in ("http://evil.example\\@hooks.example", "https://[evil", "https://a:port"):
        with pytest.raises(InvalidValue):
            addresses.parse(address)


def test_a_channel_of_a_host_that_is_no_longer_permitted_is_not_sent_to(
    receiver: Receiver, settings: Any
) -> None:
    parsed = addresses.parse(receiver.url)
    channel = AlertChannel(name="c", service=parsed.service, secret=sending.encrypt_address(parsed))
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, alert_hosts=["hooks.example"])
    message = compose(MessageKind.FIRED, [alert("title")])
    id = uuid4()
    with pytest.raises(sending.NotSent, match="ARRESTER_ALERT_HOSTS"):
        sending.send(channel, id, id, message, now=NOW)
    assert receiver.requests == []


def test_a_service_that_redirects_is_not_followed(receiver: Receiver) -> None:
    receiver.status, receiver.location = 307, f"{receiver.url}/other"
    with pytest.raises(sending.NotSent):
        send_by_apprise(receiver.url.replace("http", "json"))
    assert [each.path for each in receiver.requests] == ["/hook"]


@pytest.mark.parametrize("separator", [" ", ", ", ","])
def test_an_address_is_one_address(receiver: Receiver, separator: str) -> None:
    url = receiver.url.replace("http", "json")
    with suppress(sending.NotSent):
        send_by_apprise(f"{url}{separator}{url}/other")
    assert len(receiver.requests) <= 1


def send_by_apprise(url: str) -> None:
    parsed = addresses.Address(service="JSON", shown="", url=url)
    channel = AlertChannel(name="c", service=parsed.service, secret=sending.encrypt_address(parsed))
    id = uuid4()
    sending.send(channel, id, id, compose(MessageKind.FIRED, [alert("title")]), now=NOW)
