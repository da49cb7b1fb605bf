"""A TCP proxy before Redis whose connections can be cut or slowed down."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class RedisProxy:
    """Listens on a port of this host, and forwards to a unix socket, or to a host and port."""

    def __init__(self, target: str | tuple[str, int]) -> None:
        self.target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()
        #: The delay of each part of an answer or a request.
        self.delay_seconds = 0.0
        #: Whether connections are refused.
        self.is_cut = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def cut(self) -> None:
        """End all connections, and refuse new ones until `is_cut` is False."""
        self.is_cut = True
        self._end_all()

    def lead_to(self, target: tuple[str, int]) -> None:
        """End all connections, and forward new ones to another server."""
        self.target = target
        self._end_all()

    def close(self) -> None:
        """End all connections, and listen no longer."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._server.close()
        self._end_all()

    def _end_all(self) -> None:
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:  # closed
                return
            if self.is_cut:
                client.close()
                continue
            family = socket.AF_UNIX if isinstance(self.target, str) else socket.AF_INET
            server = socket.socket(family)
            try:
                server.connect(self.target)
            except OSError:
                client.close()
                server.close()
                continue
            self._connections |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(65_536):
                time.sleep(self.delay_seconds)
                sink.sendall(part)
        for each in (source, sink):
            self._connections.discard(each)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
