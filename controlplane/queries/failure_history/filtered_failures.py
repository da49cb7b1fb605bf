"""Failures by what has no index: response, instance, key, record, and words of the message.

A page reads a bounded part of the log, or of the index of records, and keeps what matches.
"""

from __future__ import annotations

from datetime import datetime

from arrester.controlplane import store
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.failure_history.failures import (
    FailureFilter,
    indexed_failures,
    query_of,
)
from arrester.controlplane.queries.failure_history.record_search import (
    MAX_SEARCH,
    RecordFilter,
    field_term,
    find_records,
)
from arrester.controlplane.queries.paging import Page
from arrester.domain.errors import InvalidValue
from arrester.domain.events import FailuresCounted, RecordFailed, StoredEvent
from arrester.domain.identity.names import task_id

#: The failures that one page reads at once, and at most.
_PART, _MOST = 500, 5_000


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
    before, limit = paging.unpack(cursor, tuple[datetime, str, int]), paging.checked(limit)
    rows: list[StoredEvent] = []
    for _ in range(_MOST // _PART):
        query = query_of(wanted, before=before)
        if query is None:
            return Page(rows=tuple(rows))
        portion = store.read_failures(query, limit=_PART)
        rows += [each for each in portion.events if _matches(each, wanted)]
        if len(rows) > limit:
            return paging.page(rows, limit=limit, key=store.newest)
        before = portion.end
        if before is None:
            return Page(rows=tuple(rows))
    assert before is not None
    return Page(rows=tuple(rows), next=paging.pack(before), searched_until=before[0])


def _of_records(wanted: FailureFilter, *, cursor: str | None, limit: int) -> Page[StoredEvent]:
    """Return the failures of a record's key, and whose message has words in their order."""
    terms, words = [], None
    if wanted.record_key is not None:
        terms.append(field_term("key", wanted.record_key))
    if wanted.text is not None:
        # Without a field, a phrase is a part of any field.
        phrase = field_term("", wanted.text).removeprefix(":")
        terms.append(phrase)
        try:
            words = store.RecordQuery.parse(phrase)
        except InvalidValue:
            raise InvalidValue("text", wanted.text, "words of the message") from None
    search = RecordFilter(q=" ".join(terms), application=wanted.application)
    if len(search.q) > MAX_SEARCH:
        names = ("text", "record_key")
        longest = max(names, key=lambda each: len(getattr(wanted, each) or ""))
        start = f"{getattr(wanted, longest)[:50]}…"
        raise InvalidValue(longest, start, f"at most {MAX_SEARCH} characters in both")
    found = find_records(search, cursor=cursor, limit=limit)
    rows = [
        each.failure
        for each in found.rows
        if _matches(each.failure, wanted) and (words is None or _has_words(each.failure, words))
    ]
    searched_until = found.searched_until
    if found.next is not None and found.rows and len(rows) < limit:
        searched_until = searched_until or found.rows[-1].failure.received_at
    return Page(rows=tuple(rows), next=found.next, searched_until=searched_until)


def _has_words(stored: StoredEvent, words: store.RecordQuery) -> bool:
    """Return whether the message has the words; a field of the record may be named `message`."""
    data = stored.event.data
    assert isinstance(data, RecordFailed)
    return words.matched([("message", data.failure.message)]) is not None


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
