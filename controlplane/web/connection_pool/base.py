"""Django's PostgreSQL engine, but for where a connection comes from and where it goes."""

from __future__ import annotations

import atexit
from typing import Any, ClassVar

from django.db.backends.postgresql import base
from psycopg import Connection, IsolationLevel

from arrester.controlplane.web.connection_pool import Pool


class DatabaseWrapper(base.DatabaseWrapper):
    """A request's connection: closed at the request's end, as Django does it, it is kept here.

    Nothing is reset in between, so that statements stay prepared. Nothing has to be: pages SET
    nothing, a transaction left open ends with its connection, and so does what could not be
    unlocked (`store.streams`), since that was an error.
    """

    pool: ClassVar[Any] = None  # Django's own, of psycopg, which is not used.
    kept: ClassVar[Pool] = Pool()

    #: Whether a statement failed since the request has this connection.
    _failed = False

    @property
    def errors_occurred(self) -> bool:
        """Django forgets an error with the COMMIT or ROLLBACK behind it; here it is remembered."""
        return self._failed

    @errors_occurred.setter
    def errors_occurred(self, occurred: bool) -> None:
        self._failed = self._failed or occurred

    def get_connection_params(self) -> dict[str, Any]:
        """Have `prepared_statements` prepare at first sight, and plan that once for good.

        A connection lives long, and by itself PostgreSQL goes on to plan for the values of each
        request where it thinks that worth it. For pages of few failures either takes longer than
        to read them. All else is planned as ever.
        """
        params: dict[str, Any] = super().get_connection_params()
        params["prepare_threshold"] = 0
        params["options"] = f"{params.get('options', '')} -c plan_cache_mode=force_generic_plan"
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> Connection:
        self._failed = False
        kept = self.kept.take()
        if kept is None:
            return super().get_new_connection(conn_params)  # type: ignore[no-any-return]
        self.isolation_level = IsolationLevel.READ_COMMITTED
        return kept

    def is_usable(self) -> bool:
        """Return False behind an error, too: it may be in what the connection remembers, such as
        the plan of a statement whose table was migrated, and would come again for good."""
        return not self.errors_occurred and super().is_usable()

    def _close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        with self.wrap_database_errors:
            if self.errors_occurred:
                connection.close()
            else:
                self.kept.give_back(connection)


# An end by itself; a server's ends by a signal, and its sockets with it.
atexit.register(DatabaseWrapper.kept.close)
