"""A pool of connections to PostgreSQL, for the web process only.

`asgi` makes this package Django's ENGINE, see `base`. Celery's workers, `wake` and `manage.py` have
one connection each, with Django's own engine.

psycopg's pool connects in background threads with a back-off: while PostgreSQL is unreachable each
request would wait before it fails, and afterwards for the rest of the pause. Here a request without
a free connection opens one, and fails at once if it cannot. There are as many connections as
parallel requests, as without a pool, and no request waits for another.
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

#: The most idle connections. PostgreSQL allows 100 by default, and a page's queries take
#: milliseconds.
SIZE = 8
#: An idle connection is closed after this time, at the end of the next request.
IDLE_SECONDS = 60.0
#: The memory of a backend for tables and plans grows; a new one starts without.
LIFE_SECONDS = 3600.0


class Waiting(NamedTuple):
    connection: Connection
    since: float


class Pool:
    """The idle connections to one database with one role."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        #: The last one returned is taken first: the others age and are closed.
        self._waiting: deque[Waiting] = deque()
        self._born: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Connection | None:
        """Return a usable connection; None if the caller has to open one.

        Dead ones are skipped without a wait: after a restart of PostgreSQL all of them are.
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
        """Keep a connection for the next request, or close it if it is not usable."""
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
        """Close the idle connections."""
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
    """Return whether nothing unexpected was received: PostgreSQL's last message, or the end.

    The kernel knows that without a round trip. A lost host is detected by TCP's probes, see
    `settings.TCP`.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
