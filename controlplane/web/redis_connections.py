"""Redis connections of the web process: a Redis that hangs delays a request once, and briefly."""

from __future__ import annotations

from typing import Any, Final

from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.exceptions import TimeoutError

from arrester.controlplane.web.hang import REDIS_SECONDS, Hang

HANG: Final = Hang("Redis")


class _Bounded:
    """The part of a connection that fails at once while Redis is known to hang."""

    def connect(self) -> None:
        try:
            super().connect()  # type: ignore[misc]
        except TimeoutError:
            HANG.notice()
            raise

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        if HANG.noticed:
            raise TimeoutError(HANG.message)
        super().send_packed_command(*args, **kwargs)  # type: ignore[misc]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except TimeoutError:
            HANG.notice()
            raise


class BoundedConnection(_Bounded, Connection):
    """Over TCP."""


class BoundedSSLConnection(_Bounded, SSLConnection):
    """Over TLS."""


class BoundedUnixConnection(_Bounded, UnixDomainSocketConnection):
    """On a Unix socket."""


_CLASSES: Final = {
    SSLConnection: BoundedSSLConnection,
    UnixDomainSocketConnection: BoundedUnixConnection,
}


def options(url: str) -> dict[str, Any]:
    """Return the options of the client at `url`."""
    parsed = parse_url(url)  # type: ignore[no-untyped-call]
    return {
        "socket_timeout": REDIS_SECONDS,
        "socket_connect_timeout": REDIS_SECONDS,
        "connection_class": _CLASSES.get(parsed.get("connection_class"), BoundedConnection),
    }
