"""How long requests wait for a PostgreSQL or Redis that hangs: suspended, or a dead link."""

from __future__ import annotations

import logging
import time
from typing import Final

LOG = logging.getLogger(__name__)
#: A request waits for PostgreSQL for at most the sum of the first two, for Redis for the last one:
#: together less than the two seconds that a page may take.
ANSWER_SECONDS: Final = 0.4
CONNECT_SECONDS: Final = 1.0
REDIS_SECONDS: Final = 0.4
#: After a hang, requests fail at once for this long; then one of them waits again.
PAUSE_SECONDS: Final = 1.0


class Hang:
    """Whether a server hangs, as far as this process has noticed."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._until = 0.0

    @property
    def message(self) -> str:
        """The reason in log and errors."""
        return f"{self._server} hangs: no answer in time"

    @property
    def noticed(self) -> bool:
        """Whether a request has just waited in vain."""
        return time.monotonic() < self._until

    def notice(self) -> None:
        """Record that a request has waited in vain."""
        if not self.noticed:
            LOG.warning("%s; requests fail at once for %s s", self.message, PAUSE_SECONDS)
        self._until = time.monotonic() + PAUSE_SECONDS
