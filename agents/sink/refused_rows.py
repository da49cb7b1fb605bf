"""Find the rows that a table refuses: bisection with savepoints in one transaction.

The rows are in a staging table. Ranges of them are inserted in their order; a range that fails is
halved. Inserted rows stay, so a row that conflicts with an earlier one is refused. The caller rolls
the transaction back.
"""

from __future__ import annotations

from collections.abc import Callable

from arrester.agents.definition.stores.jdbc_call import StagedRows
from arrester.agents.execution.bisection import NoSingleRecord
from arrester.agents.spark.jvm.stores.jdbc_connection import sql_state
from arrester.agents.spark.postgresql import ROW_NUMBER, quoted

#: The most inserts for one micro-batch.
INSERTS = 10_000
_NUMBER = quoted(ROW_NUMBER)


class RefusedRows:
    """The rows of one staging table that the target refuses, by number, with their exceptions.

    `check` gets each exception, and raises if no row is its cause.
    """

    def __init__(self, staged: StagedRows, check: Callable[[Exception], object]) -> None:
        self._connection = staged.connection
        self._statements = staged.statements
        self._check = check
        self._inserts_left = INSERTS
        self._checked: set[str | None] = set()
        self._refused: dict[int, Exception] = {}
        self._rows = 0

    @property
    def are_all(self) -> bool:
        """Whether the target has accepted none of the rows."""
        return len(self._refused) == self._rows

    def find(self) -> dict[int, Exception]:
        """Return the refused rows; raises NoSingleRecord, and exceptions of the connection."""
        connection, staging = self._connection, self._statements.staging
        connection.begin()
        connection.execute(self._statements.index)
        self._rows = rows = int(connection.value(f"SELECT count(*) FROM {staging}") or 0)
        if not rows:
            return {}
        # Deferred constraints are checked by each insert, as at the end of a commit.
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        raised = self._insert(0, -1)
        if raised is not None:
            raise NoSingleRecord("it fails without any record, too", raised, recordless=True)
        first = int(connection.value(f"SELECT min({_NUMBER}) FROM {staging}") or 0)
        last = int(connection.value(f"SELECT max({_NUMBER}) FROM {staging}") or 0)
        if rows == 1:
            self._search(first, last, rows)
        else:
            # The write has failed with all rows.
            self._search_halves(first, last, rows)
        self._repeat_refused()
        return self._refused

    def _search(self, first: int, last: int, rows: int) -> None:
        """Insert the rows of a range, without those that are refused."""
        raised = self._insert(first, last)
        if raised is None:
            return
        if rows == 1:
            self._refused[first] = raised
            return
        self._search_halves(first, last, rows)

    def _search_halves(self, first: int, last: int, rows: int) -> None:
        half = rows // 2
        middle = self._number_at(first, last, half)
        self._search(first, self._number_at(first, last, half - 1), half)
        self._search(middle, last, rows - half)

    def _repeat_refused(self) -> None:
        """Insert refused rows again: a row may refer to a later one, such as its parent."""
        inserted = True
        while inserted and self._refused:
            inserted = False
            for number in list(self._refused):
                raised = self._insert(number, number)
                if raised is None:
                    del self._refused[number]
                    inserted = True
                else:
                    self._refused[number] = raised

    def _check_once(self, exc: Exception) -> None:
        """Check an exception, unless one with its SQLSTATE was: a check takes many calls."""
        state = sql_state(exc)
        if state is None or state not in self._checked:
            self._check(exc)
            self._checked.add(state)

    def _number_at(self, first: int, last: int, offset: int) -> int:
        text = self._connection.value(
            f"SELECT {_NUMBER} FROM {self._statements.staging} "
            f"WHERE {_NUMBER} BETWEEN ? AND ? ORDER BY {_NUMBER} OFFSET ? LIMIT 1",
            *(first, last, offset),
        )
        assert text is not None
        return int(text)

    def _insert(self, first: int, last: int) -> Exception | None:
        """Insert a range; return why it is refused."""
        connection = self._connection
        self._inserts_left -= 1
        connection.execute("SAVEPOINT before_range")
        try:
            connection.execute(self._statements.insert_range, first, last)
        except Exception as exc:  # of the JDBC driver
            self._check_once(exc)
            if self._inserts_left < 0:
                why = f"more of its rows are refused than {INSERTS} inserts could find"
                raise NoSingleRecord(why, exc) from exc
            connection.execute("ROLLBACK TO SAVEPOINT before_range")
            return exc
        connection.execute("RELEASE SAVEPOINT before_range")
        return None
