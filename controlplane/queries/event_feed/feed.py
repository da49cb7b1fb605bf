"""The feed of all events, for followers: nothing ever appears before a cursor.

Each log is appended to under its lock, so its positions are committed in order: a vector of one
position per log misses nothing, with any number of writers.
"""

from __future__ import annotations

from arrester.controlplane import store
from arrester.controlplane.domain.errors import BeforeHistory, InvalidValue
from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.event_feed import feed_cursor
from arrester.controlplane.queries.results import Answer


class Feed(Answer, frozen=True, kw_only=True):
    """Some events, each log's in order, and the cursor to continue with."""

    events: tuple[StoredEvent, ...]
    #: Always present: later events come after it.
    cursor: str
    #: Whether there are more already.
    more: bool


def feed(application: str | None = None, *, cursor: str | None = None, limit: int = 100) -> Feed:
    """Return the events after a cursor, in all logs or in one; without a cursor from the beginning.

    A cursor before the retained log raises BeforeHistory: start again without it.
    """
    known = store.all_streams()
    given = {} if cursor is None else feed_cursor.unpack(cursor)
    streams = [store.read_stream(application)] if application else known
    bases = store.bases()
    read = {
        stream.application: _begin(
            stream, bases.get(stream.application, store.Base()), given.get(stream.id)
        )
        for stream in streams
    }
    ends = {stream.application: stream.sequence for stream in streams}
    behind = {name: at for name, at in read.items() if at < ends[name]}
    events = store.read_following(behind, limit=cursors.bounded(limit))
    firsts = {each.application: each.sequence for each in reversed(events)}
    if any(first > read[name] + 1 for name, first in firsts.items()):
        # Retention has dropped events since the beginnings of the logs were read.
        return feed(application, cursor=cursor, limit=limit)
    for each in events:
        read[each.application] = max(read[each.application], each.sequence)
    return Feed(
        events=tuple(events),
        cursor=feed_cursor.pack(given | {each.id: read[each.application] for each in streams}),
        more=any(read[name] < end for name, end in ends.items()),
    )


def _begin(stream: store.Stream, base: store.Base, given: int | None) -> int:
    if given is None:
        return base.position
    if given < base.position:
        raise BeforeHistory(stream.application, position=base.position, moment=base.received_at)
    if given > stream.sequence:
        raise InvalidValue("cursor", f"{stream.application} @{given}", f"up to @{stream.sequence}")
    return given
