"""Connections to PostgreSQL that wait for the next request: for the web process alone.

`asgi` makes this package Django's ENGINE, see `base`. Celery's children, the relay, the wake and
`manage.py` have one connection each, and Django's own engine.

It is not psycopg's pool. That connects in threads of its own, with a back-off: while PostgreSQL is
away each request would wait before it is refused, and once it is back, for what is left of the
pause. Here who finds no connection opens one, and hears at once when there is none to be had. So
there are as many as requests at a time, as without a pool, and nobody waits for somebody else's.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from psycopg import Connection
from psycopg.pq import PipelineStatus, TransactionStatus

#: So many wait at most. PostgreSQL takes 100 by default, and what a page asks takes milliseconds.
SIZE = 8
#: Who was not needed for so long is closed, when the next request ends.
IDLE_SECONDS = 60.0
#: What a backend remembers of tables and plans grows; a new one begins with nothing.
LIFE_SECONDS = 3600.0


class Waiting(NamedTuple):
    connection: Connection
    since: float


class Pool:
    """The connections to one database, of one role, that no request has."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        #: The last one given back is taken first: the others get old, and go.
        self._waiting: deque[Waiting] = deque()
        self._born: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Connection | None:
        """Return a connection that is as good as new; None when the caller has to open one.

        Dead ones are passed over without a pause: after a restart of PostgreSQL all of them are.
        """
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                connection = self._waiting.pop().connection
            if _is_silent(connection):
                return connection
            connection.close()

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it, if it is not as good as new."""
        now = self._clock()
        with self._lock:
            born = self._born.setdefault(connection, now)
            gone = []
            if _is_clean(connection) and now - born < LIFE_SECONDS:
                self._waiting.append(Waiting(connection, now))
            else:
                gone.append(connection)
            while self._waiting and (
                len(self._waiting) > SIZE or now - self._waiting[0].since > IDLE_SECONDS
            ):
                gone.append(self._waiting.popleft().connection)
        for each in gone:
            each.close()

    def close(self) -> None:
        """Close what waits."""
        with self._lock:
            gone = list(self._waiting)
            self._waiting.clear()
        for each in gone:
            each.connection.close()


def _is_clean(connection: Connection) -> bool:
    return (
        not connection.closed
        and connection.autocommit
        and connection.pgconn.transaction_status == TransactionStatus.IDLE
        and connection.pgconn.pipeline_status == PipelineStatus.OFF
    )


def _is_silent(connection: Connection) -> bool:
    """Return whether nothing was said that nobody asked for: PostgreSQL's last words, or the end.

    The kernel knows that without a round trip. A host that is gone without a word is said to be
    gone by TCP's probes, see `settings.TCP`.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
