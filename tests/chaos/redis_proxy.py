"""A TCP proxy before Redis whose connections can be cut or slowed down."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class RedisProxy:
    """Listens on a port of this host, and forwards to a unix socket."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()
        #: The delay of each part of an answer or a request.
        self.delay_seconds = 0.0
        #: Whether connections are refused.
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def cut(self) -> None:
        """End all connections, and refuse new ones until `is_cut` is False."""
        self.is_cut = True
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            if self.is_cut:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
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
