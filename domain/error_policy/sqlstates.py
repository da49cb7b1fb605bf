"""SQLSTATEs whose kind is known: those of no single row.

Their meanings are those of PostgreSQL's list:
https://www.postgresql.org/docs/current/errcodes-appendix.html. Two characters are a class, for
which a state of its own has priority. All other states, such as 22 and 23, are failures of rows.
"""

from __future__ import annotations

#: A further attempt may succeed.
RETRIABLE: dict[str, str] = {
    "08": "connection",
    "25006": "read-only: a standby, before it is promoted",
    "25P03": "idle_in_transaction_session_timeout",
    "25P04": "transaction_timeout",
    "40": "serialization failure or deadlock",
    "53": "resources: disk, memory, connections",
    "55P03": "lock_timeout, or NOWAIT",
    # 57014 is statement_timeout, also while another session holds a lock, and pg_cancel_backend.
    "57": "cancelled, or the server ends or starts",
    "58": "system error outside of the database",
}

#: The login, or the database as a whole.
FATAL_LOGIN: dict[str, str] = {"28": "login"}
FATAL_RIGHT: dict[str, str] = {"42501": "right"}
FATAL_MISSING: dict[str, str] = {
    "3D000": "missing database",
    "42P01": "missing table",
    "57P04": "dropped database",
}

#: Rows may have these too: a policy of row-level security, or a trigger, refuses them.
FATAL = frozenset({*FATAL_LOGIN, *FATAL_RIGHT, *FATAL_MISSING})
