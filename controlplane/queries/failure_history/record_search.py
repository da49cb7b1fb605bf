"""Find failed records by key, position, the value of a field, or words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from uuid import UUID

import msgspec

from arrester.controlplane import store
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.failure_history.dead_letters import DeadLetter
from arrester.controlplane.queries.failure_history.dead_letters_at import dead_letters_at
from arrester.controlplane.queries.failure_history.record_outcomes import (
    RecordOutcome,
    dead_letter_id,
    outcomes,
    task_of,
)
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.store import LogStream, RecordBlock, RecordKey, RecordQuery
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed, StoredEvent
from arrester.domain.identity.names import TaskId

#: The longest text that is searched for, in characters.
MAX_SEARCH = 500
#: The most blocks whose records one page reads.
_BLOCKS = 500
#: The newest events of each log that are searched although they are not indexed yet.
_TAIL = 2_000


class RecordFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which failed records to find."""

    #: Words, phrases in quotes, and `field:value`; see `RecordQuery`.
    q: str = ""
    application: str | None = None


class FoundRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of a record that matches."""

    #: The RecordFailed, with its body.
    failure: StoredEvent
    task: TaskId
    #: The fields that match: `key`, `task`, `position`, `message`, or the path of a field.
    matches: tuple[str, ...]
    outcome: RecordOutcome


class FoundRecords(Page[FoundRecord], frozen=True, kw_only=True):
    """Some matching failures, newest first."""

    #: Dead letters at the position that is asked for, whose records were only counted. On the first
    #: page.
    dead_letters: tuple[DeadLetter, ...] = ()
    #: By application: how many of its newest events are not searched, because they are not indexed.
    not_indexed: Mapping[str, int] = {}


def field_term(field: str, value: str) -> str:
    """Return the text of a search for the records whose field has a value."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{field}:"{escaped}"'


def find_records(
    wanted: RecordFilter, *, cursor: str | None = None, limit: int = 50
) -> FoundRecords:
    """Return the failures of matching records, by time of receipt, newest first.

    The result is exact: no indexed failure is left out, and none is added. If a page ends before it
    is full, `searched_until` is the time up to which it searched, and `next` continues. Raises
    InvalidValue.
    """
    if len(wanted.q) > MAX_SEARCH:
        raise InvalidValue("q", f"{wanted.q[:50]}…", f"at most {MAX_SEARCH} characters")
    query, limit = RecordQuery.parse(wanted.q), paging.checked(limit)
    before = paging.unpack(cursor, tuple[datetime, int, int], of="records")

    def paths(failure: StoredEvent) -> list[str] | None:
        data = failure.event.data
        assert isinstance(data, RecordFailed)
        return query.matched(store.fields_of(data, failure.event.body))

    search = Search(application=wanted.application, matched=paths, before=before, limit=limit)
    search.run(query.terms())
    rows = _records(search)
    return FoundRecords(
        rows=rows,
        dead_letters=tuple(_only_counted(query, rows, wanted, limit)) if before is None else (),
        next=None if search.end is None else paging.pack(search.end, of="records"),
        searched_until=search.searched_until,
        not_indexed={
            each.application: left
            for each in search.streams.values()
            if (left := each.sequence - search.indexed.get(each.id, 0) - _TAIL) > 0
        },
    )


def _only_counted(
    query: RecordQuery, rows: Sequence[FoundRecord], wanted: RecordFilter, limit: int
) -> Iterator[DeadLetter]:
    reported = {dead_letter_id(each.failure, each.task) for each in rows}
    for each in dead_letters_at(query, application=wanted.application, limit=limit):
        if UUID(hex=each.id) not in reported:
            yield each


def _tail(stream: LogStream, indexed: int) -> RecordBlock | None:
    """Return the newest events of a log that are not indexed as a block; None: all are."""
    if stream.sequence <= indexed or stream.received_at is None:
        return None
    first = max(indexed, stream.sequence - _TAIL) + 1
    return RecordBlock(stream.id, first, stream.sequence, None, stream.received_at)


def _newest_first(
    tails: Iterable[RecordBlock], candidates: Iterable[RecordBlock]
) -> Iterator[RecordBlock]:
    in_order = sorted(tails, key=RecordBlock.newest, reverse=True)
    return merge(in_order, candidates, key=RecordBlock.newest, reverse=True)


@dataclass(slots=True, kw_only=True)
class Search:
    """One page of matching failures, newest receipt first."""

    application: str | None
    #: The fields of a failure that match; None: it does not match.
    matched: Callable[[StoredEvent], list[str] | None]
    #: Which failures are read, by their heads; None: all of them, with their bodies.
    heads: store.HeadFilter | None = None
    #: The last failure of the page before.
    before: RecordKey | None
    limit: int
    streams: Mapping[int, LogStream] = field(init=False)
    #: Up to which position each log is indexed.
    indexed: Mapping[int, int] = field(init=False)
    found: list[tuple[RecordKey, StoredEvent, list[str]]] = field(default_factory=list)
    #: The cursor of the next page; None: there is none.
    end: RecordKey | None = None
    #: The time up to which the page searched, if it ends before it is full.
    searched_until: datetime | None = None

    def __post_init__(self) -> None:
        """Choose the logs."""
        self.streams = {
            each.id: each
            for each in store.all_streams()
            if self.application in (None, each.application) and each.received_at is not None
        }
        self.indexed = store.indexed_positions(self.streams)

    def run(self, terms: Collection[str]) -> None:
        """Search the failures that have all terms in the index, and those not indexed yet."""
        most = _BLOCKS + len(self.streams) + 1
        candidates = store.candidate_blocks([*self.streams], terms, before=self.before, most=most)
        tails = (_tail(each, self.indexed.get(each.id, 0)) for each in self.streams.values())
        self._read(_newest_first([each for each in tails if each is not None], candidates))
        self.found.sort(key=lambda each: each[0], reverse=True)
        if self.end is not None:
            end = self.end
            self.found = [each for each in self.found if each[0] >= end]
        if len(self.found) > self.limit:
            del self.found[self.limit :]
            self.end, self.searched_until = self.found[-1][0], None

    def _read(self, blocks: Iterable[RecordBlock]) -> None:
        """Read blocks, newest first, until the page is full or `_BLOCKS` are read."""
        left = _BLOCKS
        for block, failures in store.read_blocks(blocks, self.streams, matches=self.heads):
            newest = block.newest()
            if self._is_full(newest):
                break
            if not left:
                self.searched_until = block.received_at
                self.end = (*newest[:2], newest[2] + 1)
                break
            for each in failures:
                self._match((each.received_at, block.stream, each.sequence), each)
            # The block in which the last page ended is read again, one of each log at most.
            left -= self.before is None or newest < self.before

    def _is_full(self, newest: RecordKey) -> bool:
        """Return whether the page has its rows, if all further ones are not newer than this."""
        if len(self.found) <= self.limit:
            return False
        return sum(key > newest for key, *_ in self.found) > self.limit

    def _match(self, key: RecordKey, failure: StoredEvent) -> None:
        if self.before is not None and key >= self.before:
            return
        paths = self.matched(failure)
        if paths is not None:
            self.found.append((key, failure, paths))


def _records(search: Search) -> tuple[FoundRecord, ...]:
    """Return the rows of a page."""
    became = outcomes([stored for _, stored, _ in search.found])
    return tuple(
        FoundRecord(failure=stored, task=task_of(stored), matches=tuple(paths), outcome=outcome)
        for (_, stored, paths), outcome in zip(search.found, became, strict=True)
    )
