"""How states are rows of a view, and statements that read states of views."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from django.db import connection

from arrester.controlplane import models
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.views.bulk_upsert import Row, Upsert
from arrester.domain.errors import BrokenState
from arrester.domain.state.states import (
    AnyState,
    State,
)
from arrester.domain.state.stream_state import StreamState

S = TypeVar("S", bound=State)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMapping(Generic[S]):
    """A view's table, the state of its rows, and the other columns."""

    model: type[models.View]
    state: type[S]
    columns: Callable[[S], Row]
    #: The key without the application as one text, from a state and in SQL from its row.
    key: Callable[[S], str]
    key_sql: str
    #: The states of a stream by key, the keys that a fold has changed, and the key of a text.
    states: Callable[[StreamState], Mapping[Any, S]]
    changed: Callable[[StreamState], Collection[Any]]
    parse_key: Callable[[str], Hashable]

    @property
    def table(self) -> str:
        """The name of the view's table."""
        return self.model._meta.db_table

    def row(self, state: S) -> Row:
        """Return the whole row of `state`."""
        text = msgspec.json.encode(state).decode()
        return self.columns(state) | {"sequence": state.sequence, "state": text}

    def load(self, where: str, parameters: list[Any]) -> list[S]:
        """Return the states of the rows that `where` selects; raise BrokenState."""
        return [self.read(text) for text in self._texts(where, parameters)]

    def load_prepared(self, key: str, parameters: list[Any]) -> list[S]:
        """Return the states of the few rows with a key: the statement is planned once, for any
        value. Raise BrokenState."""
        rows = prepared_statements.rows(f"SELECT state FROM {self.table} WHERE {key}", parameters)
        return [self.read(text) for (text,) in rows]

    def load_readable(self, where: str, parameters: list[Any]) -> list[S]:
        """Return the readable states of such rows, and log the others: pages over all
        applications show the rest without a broken row."""
        states = []
        for text in self._texts(where, parameters):
            try:
                states.append(self.read(text))
            except BrokenState as exc:
                log.error("not shown: %s", exc)
        return states

    def _texts(self, where: str, parameters: list[Any]) -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT state FROM {self.table} WHERE {where}", parameters)
            return [text for (text,) in cursor.fetchall()]

    def read(self, text: str) -> S:
        """Return the state of a row's text; raise BrokenState."""
        try:
            return msgspec.json.decode(text, type=self.state)
        except (ValueError, TypeError, RecursionError) as exc:
            # The server wrote the row: the entry that made us read it is not the cause.
            raise BrokenState(self.table, text, str(exc)) from exc

    def changed_states(self, stream: StreamState) -> Iterator[S]:
        """Return the states that a fold has changed."""
        return map(self.states(stream).__getitem__, self.changed(stream))

    def changed_rows(self, stream: StreamState) -> Upsert:
        """Return the statement that inserts the rows of changed states, or replaces them."""
        return Upsert(self.model, [self.row(state) for state in self.changed_states(stream)])


class RowQuery(NamedTuple):
    """The rows of a view that `where` selects."""

    view: ViewMapping[Any]
    where: str
    parameters: list[Any]


def query_together(wanted: Sequence[RowQuery]) -> Callable[[], Iterator[AnyState]]:
    """Query the states of several views in one statement of a pipeline; the returned function
    yields them afterwards, or raises BrokenState."""
    parts = [
        f"SELECT {number}, state FROM {each.view.table} WHERE {each.where}"
        for number, each in enumerate(wanted)
    ]
    cursor = prepared_statements.cursor()
    cursor.execute(
        " UNION ALL ".join(parts), [value for each in wanted for value in each.parameters]
    )

    def states() -> Iterator[AnyState]:
        for number, text in cursor.fetchall():
            yield wanted[number].view.read(text)

    return states
