"""A real SMTP server and a real HTTP server that keep what they receive."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

from tests import ports


@dataclass
class Request:
    """A received POST request."""

    path: str
    headers: dict[str, str]
    content: bytes


@dataclass
class Receiver:
    """An HTTP server that answers POST requests with `status`."""

    url: str = ""
    status: int = 200
    answer: bytes = b""
    #: Where a redirect leads to.
    location: str = ""
    requests: list[Request] = field(default_factory=list)


@contextmanager
def http_receiver() -> Iterator[Receiver]:
    """Run an HTTP server."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append(Request(self.path, dict(self.headers.items()), content))
            self.send_response(receiver.status)
            self.send_header("Content-Length", str(len(receiver.answer)))
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()
            self.wfile.write(receiver.answer)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Mailbox:
    """An SMTP server with the messages that it has received."""

    url: str = ""
    answer: str = "250 accepted"
    messages: list[EmailMessage] = field(default_factory=list)


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Run an SMTP server."""
    mailbox = Mailbox()

    class Handler:
        async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
            parsed = BytesParser(policy=default).parsebytes(envelope.content)
            assert isinstance(parsed, EmailMessage)
            mailbox.messages.append(parsed)
            return mailbox.answer

    port = ports.free_port()
    controller = Controller(Handler(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        mailbox.url = f"smtp://127.0.0.1:{port}?from=arrester@example.com"
        yield mailbox
    finally:
        controller.stop()


@contextmanager
def dripping_server(begin: bytes) -> Iterator[int]:
    """Run a server that begins an answer, then adds one byte of it at a time, without an end.

    It yields its port.
    """
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(begin)
                while not over.is_set():
                    connection.sendall(b"a")
                    time.sleep(0.05)
            except OSError:
                pass

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
