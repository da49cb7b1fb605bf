"""HTTP as uvicorn reads it, with a time limit for the headers of a request."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: From the connection, or the first byte of a further request, to the end of the headers.
MAXIMUM_SECONDS: Final = 10.0


class TimedHeaders(H11Protocol):
    """Close a connection whose headers do not arrive in time; bodies: `request_limits`."""

    header_seconds = MAXIMUM_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin the time of the first headers."""
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Begin, continue or end the time of the headers."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end()
        elif self._timer is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time."""
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._timer = self.loop.call_later(self.header_seconds, self._close)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.logger.debug("headers did not arrive within %g s", self.header_seconds)
            self.transport.close()
