"""Failures by what has no index: response, instance, key, record, and words of the message.

A page reads a bounded part of the log, or of the index of records, and keeps what matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache

from arrester.controlplane import store
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.failure_history.failures import (
    FAILURES,
    FailureFilter,
    indexed_failures,
    query_of,
)
from arrester.controlplane.queries.failure_history.record_search import (
    MAX_SEARCH,
    Search,
    field_term,
)
from arrester.controlplane.queries.paging import Page
from arrester.domain.errors import InvalidValue
from arrester.domain.events import FailuresCounted, RecordFailed, StoredEvent
from arrester.domain.identity.names import task_id

#: The failures that one page reads at once, and at most.
_PART, _MOST = 500, 5_000
#: The name of the list by words or a record's key in cursors: its order is another one.
_BY_RECORD = "failures by receipt"


def failures(
    wanted: FailureFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return failures (RecordFailed, FailuresCounted) by time of occurrence, newest first; those of
    a task by time of receipt.

    `event.data.count` of all rows sums up to the failed records; bodies are left out.

    A page reads a bounded number of rows of the log. If it ends before it is full, `searched_until`
    is the time up to which it searched, and `next` continues.

    With `record_key` or `text`, newest receipt first, and only failures that were reported in full.
    """
    if wanted.text is not None or wanted.record_key is not None:
        return _of_records(wanted, cursor=cursor, limit=limit)
    if wanted.response is None and wanted.instance is None and wanted.key is None:
        return indexed_failures(wanted, cursor=cursor, limit=limit)
    before, limit = (
        paging.unpack(cursor, tuple[datetime, str, int], of=FAILURES),
        paging.checked(limit),
    )
    rows: list[StoredEvent] = []
    for _ in range(_MOST // _PART):
        query = query_of(wanted, before=before)
        if query is None:
            return Page(rows=tuple(rows))
        portion = store.read_failures(query, limit=_PART)
        rows += [each for each in portion.events if _matches(each, wanted)]
        if len(rows) > limit:
            return paging.page(rows, of=FAILURES, limit=limit, key=store.newest)
        before = portion.end
        if before is None:
            return Page(rows=tuple(rows))
    assert before is not None
    return Page(rows=tuple(rows), next=paging.pack(before, of=FAILURES), searched_until=before[0])


def _of_records(wanted: FailureFilter, *, cursor: str | None, limit: int) -> Page[StoredEvent]:
    """Return the failures of a record's key, and whose message has words in their order."""
    query = _query(wanted)
    search = Search(
        application=wanted.application,
        heads=_head_filter(wanted, query.phrases),
        matched=lambda failure: [] if _matches(failure, wanted) else None,
        before=paging.unpack(cursor, tuple[datetime, int, int], of=_BY_RECORD),
        limit=paging.checked(limit),
    )
    search.run(query.terms())
    return Page(
        rows=tuple(failure for _, failure, _ in search.found),
        next=None if search.end is None else paging.pack(search.end, of=_BY_RECORD),
        searched_until=search.searched_until,
    )


def _query(wanted: FailureFilter) -> store.RecordQuery:
    """Return the query of what the index has; raise InvalidValue for a text without words."""
    terms = []
    if wanted.record_key is not None:
        terms.append(field_term("key", wanted.record_key))
    if wanted.text is not None:
        # Without a field, a phrase is a part of any field.
        phrase = field_term("", wanted.text).removeprefix(":")
        terms.append(phrase)
        try:
            store.RecordQuery.parse(phrase)
        except InvalidValue:
            raise InvalidValue("text", wanted.text, "words of the message") from None
    q = " ".join(terms)
    if len(q) > MAX_SEARCH:
        names = ("text", "record_key")
        longest = max(names, key=lambda each: len(getattr(wanted, each) or ""))
        start = f"{getattr(wanted, longest)[:50]}…"
        raise InvalidValue(longest, start, f"at most {MAX_SEARCH} characters in both")
    return store.RecordQuery.parse(q)


def _head_filter(wanted: FailureFilter, phrases: Sequence[str]) -> store.HeadFilter:
    """Return whether a failure has the key and the words; messages recur, so each is read once."""
    words = store.RecordQuery((), tuple(phrases))

    @cache
    def has_words(message: str) -> bool:
        return words.matched([("message", message)]) is not None

    return lambda key, message: wanted.record_key in (None, key) and has_words(message)


def _matches(stored: StoredEvent, wanted: FailureFilter) -> bool:
    """Return whether a failure has all that is asked for, but for the text."""
    event, data = stored.event, stored.event.data
    if not isinstance(data, RecordFailed | FailuresCounted) or event.run is None:
        return False
    failure = data.failure
    has = {
        "application": stored.application,
        "pipeline": event.run.pipeline,
        "task": task_id(stored.application, event.run, data.task).digest,
        "stage": failure.stage,
        "exception_class": failure.exception_class,
        "fingerprint": failure.fingerprint,
        "response": data.response,
        "instance": event.instance,
        "key": data.task,
        "record_key": data.key if isinstance(data, RecordFailed) else None,
    }
    since, until = wanted.since, wanted.until
    return (
        all(getattr(wanted, name) in (None, value) for name, value in has.items())
        and (wanted.groups is None or (stored.application, failure.fingerprint) in wanted.groups)
        and (since is None or event.occurred_at >= since)
        and (until is None or event.occurred_at < until)
    )
