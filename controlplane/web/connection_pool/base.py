"""Django's PostgreSQL engine with connections from the pool."""

from __future__ import annotations

import atexit
from typing import Any, ClassVar

from django.db.backends.postgresql import base
from psycopg import Connection, IsolationLevel

from arrester.controlplane.web.connection_pool import Pool


class DatabaseWrapper(base.DatabaseWrapper):
    """A request's connection: Django closes it at the end of the request, the pool keeps it.

    Nothing is reset in between, so that statements stay prepared. Nothing has to be: pages use no
    SET, an open transaction ends with its connection, and so does a lock that could not be released
    (`store.streams`), since that was an error.
    """

    pool: ClassVar[Any] = None  # Django's own, of psycopg, which is not used.
    kept: ClassVar[Pool] = Pool()

    #: Whether a statement failed in this request.
    _failed = False

    @property
    def errors_occurred(self) -> bool:
        """Django forgets an error at the following COMMIT or ROLLBACK; this does not."""
        return self._failed

    @errors_occurred.setter
    def errors_occurred(self, occurred: bool) -> None:
        self._failed = self._failed or occurred

    def get_connection_params(self) -> dict[str, Any]:
        """Prepare the statements of `prepared_statements` at first use, with one plan for all
        values.

        A connection lives long, and PostgreSQL would plan again for the values of each request if
        it estimates a gain. For pages of few failures, planning takes longer than reading. Other
        statements are planned as usual.
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
        """Return False after an error, too: its cause may be in the connection, such as the
        plan of a statement whose table was migrated."""
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


# At a normal exit; a server ends by a signal, which closes its sockets.
atexit.register(DatabaseWrapper.kept.close)
