"""Limits of request bodies: nothing large or slow reaches Django, whose bodies are on disk."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from arrester.controlplane.web.request_limits import (
    ANONYMOUS_BYTES,
    MAXIMUM_BYTES,
    BodyLimits,
    Message,
    Receive,
    Scope,
    Send,
)
from tests.patience import PATIENCE_SECONDS

FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


def status_of(server: str, request: bytes) -> bytes:
    """Send bytes to the web process; return the status line of its answer."""
    address = urlsplit(server)
    with socket.create_connection((address.hostname, address.port), PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline().strip()


@pytest.mark.parametrize(
    ("path", "limit"), [("/login", ANONYMOUS_BYTES["/login"]), ("/api/v1/tasks", MAXIMUM_BYTES)]
)
def test_a_large_body_is_refused_before_it_is_received(server: str, path: str, limit: int) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + FORM
    for length in (str(limit + 1), "400000000", "9" * 19):
        request = head + f"Content-Length: {length}\r\n\r\n".encode()
        assert status_of(server, request) == b"HTTP/1.1 413 Request Entity Too Large", length
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * (limit // 0x1000 + 1)
    assert status_of(server, chunked) == b"HTTP/1.1 413 Request Entity Too Large"


def test_a_refused_body_of_rest_is_a_problem(server: str) -> None:
    url, body = f"{server}/api/v1/notes", b" " * (MAXIMUM_BYTES + 1)
    refused = requests.post(url, data=body, timeout=PATIENCE_SECONDS)
    assert refused.headers["Content-Type"] == "application/problem+json"
    problem = refused.json()
    assert (refused.status_code, problem["status"], problem["code"]) == (413, 413, "body_too_large")
    assert problem["type"] == "urn:arrester:problem:body_too_large"
    assert "2,621,440 bytes" in problem["detail"]


def test_a_body_within_the_limit_is_received(server: str) -> None:
    with requests.Session() as session:
        session.get(f"{server}/login", timeout=PATIENCE_SECONDS)
        token = session.cookies["csrftoken"]
        form = {"username": "ana", "password": "x" * 10_000, "csrfmiddlewaretoken": token}
        answer = session.post(f"{server}/login", data=form, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200
    assert "password" in answer.text


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body, and wait until the client leaves."""
    body = (await receive())["body"]
    await send({"type": "http.response.body", "body": body})
    assert (await receive())["type"] == "http.disconnect"


def answer_to(*messages: Message) -> list[Message]:
    """Return what the application sends, within a tenth of a second, to a client's messages."""

    async def story() -> list[Message]:
        left, sent = list(messages), list[Message]()

        async def receive() -> Message:
            if not left:
                await asyncio.sleep(PATIENCE_SECONDS)
            return left.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        scope: Any = {"type": "http", "path": "/", "headers": []}
        await BodyLimits(application, seconds=0.1)(scope, receive, send)
        return sent

    return asyncio.run(story())


def part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


LEFT: Message = {"type": "http.disconnect"}


def test_a_slow_body_is_refused() -> None:
    [start, _] = answer_to(part(b"a", more=True))
    assert start["status"] == 408


def test_parts_are_joined_and_a_client_may_leave() -> None:
    whole = answer_to(part(b"a", more=True), part(b"b", more=False), LEFT)
    assert whole == [{"type": "http.response.body", "body": b"ab"}]
    assert answer_to(part(b"a", more=True), LEFT) == []
