"""Django's PostgreSQL engine with kept connections: a request without one opens it at once.

`asgi` makes this package Django's ENGINE. Celery's workers, `wake` and `manage.py` have one
connection each, with Django's own engine. psycopg's pool would make requests wait after a restart
of PostgreSQL: see docs/decisions/0009-one-statement-per-history-page.md.
"""

from __future__ import annotations

import atexit
import select
import time
from collections import deque
from typing import Any, ClassVar, Final

from django.db.backends.postgresql import base
from psycopg import Connection, Error, IsolationLevel, OperationalError
from psycopg.pq import TransactionStatus

from arrester.controlplane import access
from arrester.controlplane.web.connection_pool.connection import HANG, connect

#: The most idle connections. PostgreSQL allows 100 by default, and a page's queries take
#: milliseconds.
SIZE = 8
#: The memory of a backend for tables and plans grows; a new one starts without.
LIFE_SECONDS = 3600.0
#: The most that one statement of a request may take.
STATEMENT_SECONDS = 30
#: See `access`.
_RESET: Final = "RESET search_path"


class DatabaseWrapper(base.DatabaseWrapper):
    """A request's connection: Django closes it at the end of the request, this class keeps it.

    Only the search path is reset in between, if the person was confined (`access`): statements stay
    prepared. Nothing else has to be: pages use no other SET, an open transaction ends with its
    connection, and so does a lock that could not be released (`store.streams`), since that was an
    error.
    """

    pool: ClassVar[Any] = None  # Django's own, of psycopg, which is not used.
    #: Idle connections, and when they were opened; the last one returned is taken first.
    idle: ClassVar[deque[tuple[Connection, float]]] = deque()
    _opened = 0.0

    def get_connection_params(self) -> dict[str, Any]:
        """Prepare the statements of `prepared_statements` at first use, with one plan for all
        values.

        A connection lives long, and PostgreSQL would plan again for the values of each request if
        it estimates a gain. For pages of few failures, planning takes longer than reading. Other
        statements are planned as usual.
        """
        params: dict[str, Any] = super().get_connection_params()
        params["prepare_threshold"] = 0
        options = {
            "plan_cache_mode": "force_generic_plan",
            "statement_timeout": f"{STATEMENT_SECONDS}s",
        }
        added = (f"-c {name}={value}" for name, value in options.items())
        params["options"] = " ".join([params.get("options", ""), *added])
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> Connection:
        """Return an idle connection, else a new one.

        Closed ones are skipped without a wait: after a restart of PostgreSQL all of them are.
        Raises OperationalError at once while PostgreSQL is known to hang.
        """
        self.isolation_level = IsolationLevel.READ_COMMITTED
        if HANG.noticed:
            raise OperationalError(HANG.message)
        while self.idle:
            try:
                connection, self._opened = self.idle.pop()
            except IndexError:  # Another request took the last one.
                break
            if _is_silent(connection):
                return connection
            connection.close()
        self._opened = time.monotonic()
        connection = connect(conn_params)
        connection.params = conn_params
        return connection

    def is_usable(self) -> bool:
        """Return False after an error, too: its cause may be in the connection, such as the
        plan of a statement whose table was migrated."""
        return not self.errors_occurred and super().is_usable()

    def _close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        with self.wrap_database_errors:
            if (
                self.errors_occurred
                or len(self.idle) >= SIZE
                or time.monotonic() - self._opened >= LIFE_SECONDS
                or not _is_clean(connection)
                or (access.is_confined(self) and not _reset(connection))
            ):
                connection.close()
            else:
                self.idle.append((connection, self._opened))

    @classmethod
    def close_idle(cls) -> None:
        """Close the idle connections."""
        while cls.idle:
            cls.idle.pop()[0].close()


def _is_clean(connection: Connection) -> bool:
    return (
        not connection.closed
        and connection.autocommit
        and connection.pgconn.transaction_status == TransactionStatus.IDLE
    )


def _reset(connection: Connection) -> bool:
    """Return whether the connection reads all applications again."""
    try:
        connection.execute(_RESET, prepare=False)
    except Error:
        return False
    return _is_clean(connection)


def _is_silent(connection: Connection) -> bool:
    """Return whether nothing unexpected was received: PostgreSQL's last message, or the end.

    The kernel answers this without a round trip. A lost host is detected by TCP's probes, see
    `settings.TCP`.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


# For a normal exit: a server ends by a signal, which closes its sockets.
atexit.register(DatabaseWrapper.close_idle)
