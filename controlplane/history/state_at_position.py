"""The states of an application at any position of its log.

They are the nearest earlier snapshot with the later events folded over it: a bounded number, since
`make_snapshot_if_due` makes snapshots periodically.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from django.db import transaction

from arrester.controlplane import store
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.controlplane.views import row_mapping, view_mapping
from arrester.domain.errors import BeforeHistory
from arrester.domain.state.states import (
    AnyState,
)
from arrester.domain.state.stream_state import StreamState, empty

#: The cost of a past state: events that are folded for any answer, and the multiple of it if no
#: housekeeper was free.
EVENTS_PER_SNAPSHOT, LATE = 10_000, 2
_VIEWS: Mapping[str, view_mapping.ViewMapping[Any]] = {
    view.table: view for view in row_mapping.STATES
}
_VIEW_OF: Mapping[type[Any], view_mapping.ViewMapping[Any]] = {
    view.state: view for view in row_mapping.STATES
}


def at(application: str, position: int) -> StreamState:
    """Return the states of an application as they were at `position`.

    Raises BeforeHistory if the log does not reach back so far.
    """
    while True:
        begin = store.base(application)
        if position < begin.position:
            raise BeforeHistory(application, position=begin.position, moment=begin.received_at)
        near = store.nearest_snapshot(application, position)
        state = load_states(application, store.states_at(application, near))
        state = state.fold(store.read_stored(application, after=near, until=position))
        if store.base(application).position <= near:
            return state
        # Retention has moved the beginning meanwhile, and may have dropped events in between.


def load_states(application: str, states: Iterable[store.StoredState]) -> StreamState:
    """Return the states of a stream from their stored form; other kinds are skipped.

    Raises BrokenState.
    """
    state = empty(application)
    for each in states:
        view = _VIEWS.get(each.kind)
        if view is not None:
            state.put(view.read(each.state))
    return state


def packed(state: AnyState) -> store.StoredState:
    """Return the stored form of a state."""
    view = _VIEW_OF[type(state)]
    return store.StoredState(view.table, view.key(state), msgspec.json.encode(state).decode())


def changed_states(stream: StreamState) -> dict[tuple[str, str], str]:
    """Return the stored forms of the states that the stream has changed, by kind and key."""
    encode = msgspec.json.Encoder().encode
    return {
        (view.table, view.key(state)): encode(state).decode()
        for view in row_mapping.STATES
        for state in view.changed_states(stream)
    }


def stored_form(stream: StreamState, kind: str, key: str) -> str | None:
    """Return the stored form of the state of a kind and key; None if there is none."""
    view = _VIEWS.get(kind)
    try:
        state = None if view is None else view.states(stream).get(view.parse_key(key))
    except ValueError:
        return None
    return None if state is None else packed(state).state


def may_be_due(before: int, after: int) -> bool:
    """Whether to check if a snapshot is due, about ten times between two snapshots."""
    step = max(1, EVENTS_PER_SNAPSHOT // 10)
    return before // step != after // step


def ensure_snapshot(application: str, here: int, *, ask: Callable[[str], None] | None) -> int:
    """Request a due snapshot with `ask`; make it here if none was made in time, or without
    `ask`. Return when to check again."""
    last = store.nearest_snapshot(application, MAX_BIGINT)
    if here < last + EVENTS_PER_SNAPSHOT:
        return last + EVENTS_PER_SNAPSHOT
    if ask is not None and here < last + LATE * EVENTS_PER_SNAPSHOT:
        ask(application)
    else:
        make_snapshot_if_due(application)
    return here + EVENTS_PER_SNAPSHOT


def make_snapshot_if_due(application: str) -> None:
    """Make a snapshot if the log has grown enough since the last one; folds do not wait for it."""
    with transaction.atomic():
        if store.try_snapshot_lock(application):
            views = {
                view.table: (row_mapping.owner(view.model), view.key_sql)
                for view in row_mapping.STATES
            }
            store.snapshot_views(application, every=EVENTS_PER_SNAPSHOT, views=views)
