"""A TLS end in front of a server on a Unix socket: the servers of the tests have no TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kafka_certificates import authority

#: The first message of a PostgreSQL client that wants TLS, and the answer that offers it.
_SSL_REQUEST, _OFFERED = bytes.fromhex("0000000804d2162f"), b"S"


@contextmanager
def in_front_of(
    place: str, folder: Path, *, host: str = "localhost", postgres: bool = False
) -> Iterator[tuple[int, Path]]:
    """Run the proxy on 127.0.0.1; return its port and the file of its certificate authority."""
    trusted = authority(folder, host=host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    arguments = (plain, context, place, postgres)
                    threading.Thread(target=_connect, args=arguments, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], trusted


def _connect(plain: socket.socket, context: ssl.SSLContext, place: str, postgres: bool) -> None:
    # A client that refuses the certificate ends the connection.
    with plain, suppress(OSError):
        if postgres:
            assert plain.recv(8) == _SSL_REQUEST
            plain.sendall(_OFFERED)
        with (
            context.wrap_socket(plain, server_side=True) as client,
            socket.socket(socket.AF_UNIX) as server,
        ):
            server.connect(place)
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
