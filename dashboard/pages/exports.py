"""Export of a filtered list as a file: CSV or JSON lines, streamed page by page.

Only one page is in memory; when the client stops reading, so does the export.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.http import Http404, HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from arrester.controlplane import access, queries
from arrester.dashboard.components import filters
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.rest.resources.failures import FailureSerializer
from arrester.dashboard.text import audit_text, event_text
from arrester.domain.errors import InvalidValue

ROWS_PER_PAGE = 500
FORMS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}
#: A spreadsheet would read these as the start of a formula, some also after blanks and invisible
#: characters, and in full width.
_FORMULA = re.compile(
    r"[\t\r\n]"
    r"|[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]*[=+@\uff1d\uff0b\uff0d\uff20-]"
)
#: Reads the page after a cursor.
Read = Callable[[str | None], queries.Page[Any]]


class Export(NamedTuple):
    """A list that can be exported: how its pages are read, and its columns.

    A column is an attribute path of a row, or a function of it.
    """

    read: Callable[[QueryDict, datetime], Read]
    columns: dict[str, str | Callable[[Any], Any]]


def _errors(requested: QueryDict, now: datetime) -> Read:
    wanted, sort = filters.of_groups(requested, now=now), filters.sort_of_groups(requested)
    return lambda cursor: queries.groups(wanted, sort=sort, cursor=cursor, limit=ROWS_PER_PAGE)


def _failures(requested: QueryDict, now: datetime) -> Read:
    """Return how the failed records of the page's error groups and time range are read."""
    wanted = filters.of_groups(requested, now=now)
    application, fingerprint = wanted.application, requested.get("fingerprint") or None
    groups = None
    if fingerprint is not None:
        queries.check_group(fingerprint, application)
    elif wanted != queries.GroupFilter(
        application=application, since=wanted.since, until=wanted.until
    ):
        groups = _groups(wanted)
    filter = queries.FailureFilter(
        application=application,
        fingerprint=fingerprint,
        groups=groups,
        since=wanted.since,
        until=wanted.until,
    )

    def read(cursor: str | None) -> queries.Page[Any]:
        page = queries.failures(filter, cursor=cursor, limit=ROWS_PER_PAGE)
        rows = FailureSerializer(page.rows, many=True).data
        return queries.Page(rows=tuple(rows), next=page.next)

    return read


def _groups(wanted: queries.GroupFilter) -> set[tuple[str, str]]:
    """Return application and fingerprint of all error groups of a filter."""
    keys: set[tuple[str, str]] = set()
    cursor: str | None = None
    while True:
        page = queries.groups(wanted, cursor=cursor, limit=ROWS_PER_PAGE)
        keys.update((each.application, each.fingerprint) for each in page.rows)
        if (cursor := page.next) is None:
            return keys


def _audit(requested: QueryDict, now: datetime) -> Read:
    wanted = filters.of_audit(requested, now=now)

    def read(cursor: str | None) -> queries.Page[Any]:
        page = queries.audit(wanted, cursor=cursor, limit=ROWS_PER_PAGE)
        return queries.Page(rows=tuple(audit_text.row(act) for act in page.rows), next=page.next)

    return read


def _dead_letters(requested: QueryDict, now: datetime) -> Read:
    wanted = filters.of_dead_letters(requested, now=now)
    return lambda cursor: queries.dead_letters(wanted, cursor=cursor, limit=ROWS_PER_PAGE)


def _commands(requested: QueryDict, now: datetime) -> Read:
    wanted = filters.of_commands(requested)
    return lambda cursor: queries.commands(**wanted, cursor=cursor, limit=ROWS_PER_PAGE)


def _history(requested: QueryDict, now: datetime) -> Read:
    task = requested.get("task", "")
    return lambda cursor: queries.task_history(task, cursor=cursor, limit=ROWS_PER_PAGE)


def _same(names: str) -> dict[str, str | Callable[[Any], Any]]:
    return {name: name for name in names.split()}


_FAILURE = (
    "stage exception_class condition message fingerprint frame attempts"
    " inner_class inner_condition field"
)


def _of_failure(name: str) -> Callable[[Any], Any]:
    return lambda row: row["failure"][name]


EXPORTS = {
    "errors": Export(
        _errors,
        _same("application fingerprint")
        | {"state": "status.value"}
        | _same("exception_class message pipeline stage frame")
        | {"records": "count"}
        | _same("estimated first_seen last_seen notes"),
    ),
    # The rows of REST, with the fields of the failure beside the others.
    "failures": Export(
        _failures,
        _same("application sequence type occurred_at received_at pipeline checkpoint epoch task")
        | _same("key instance record_key count first_position last_position response")
        | {name: _of_failure(name) for name in _FAILURE.split()},
    ),
    "audit": Export(_audit, _same("at actor kind application about what position instance status")),
    "dead-letters": Export(
        _dead_letters,
        _same("id application position size place format actor reason sequence first_sequence")
        | {"status": "status.name"}
        | _same("redrive redrives")
        | {
            "at": "occurred_at",
            "pipeline": "task.pipeline",
            "checkpoint": "task.checkpoint",
            "task": "task.key",
            "stage": "group.stage",
            "exception_class": "group.exception_class",
            "fingerprint": "group.fingerprint",
            "message": "message",
        },
    ),
    "commands": Export(
        _commands,
        {"id": "id", "kind": "kind.value", "application": "application", "task": "task.printed"}
        | _same("actor reason")
        | {"state": "status.value"}
        | _same("outcome issued_at delivered_at finished_at expires_at"),
    ),
    "history": Export(
        _history,
        {
            "position": "sequence",
            "occurred_at": "event.occurred_at",
            "received_at": "received_at",
            "type": "event.type",
            "what": lambda stored: event_text.sentence(stored.event.data),
            "epoch": "event.run.epoch",
            "caused_by": "event.caused_by",
        },
    ),
}


@require_GET
@for_people
def export(request: HttpRequest, who: Person, what: str, form: str) -> HttpResponse:
    """Stream a list as filtered by its page's URL, from beginning to end."""
    if what not in EXPORTS or form not in FORMS:
        raise Http404(f"{what}.{form}")
    if "after" in request.GET:
        raise InvalidValue(
            "after", request.GET["after"], "no cursor: an export is the complete list"
        )
    chosen = EXPORTS[what]
    read = _as_person(who, chosen.read(request.GET, timezone.now()))
    # Read here, so that faults are reported before the first byte.
    first = read(None)
    parts = stream(first, read, partial(_packed, chosen, form))
    response = StreamingHttpResponse(parts, content_type=FORMS[form])
    response["Content-Disposition"] = f'attachment; filename="{what}.{form}"'
    return response  # type: ignore[return-value]  # Django's stubs: a response like any other


def _as_person(who: Person, read: Read) -> Read:
    """Return `read` for the person, also after the request."""

    def reading(cursor: str | None) -> queries.Page[Any]:
        access.enter(who)
        return read(cursor)

    return reading


async def stream(
    page: queries.Page[Any], read: Read, pack: Callable[[Iterable[Any], bool], str]
) -> AsyncIterator[str]:
    """Yield one packed page after the other, the first with the heading."""
    yield pack(page.rows, True)
    while page.next is not None:
        page = await sync_to_async(read)(page.next)
        yield pack(page.rows, False)


def _packed(chosen: Export, form: str, things: Iterable[Any], heading: bool) -> str:
    rows = [
        {name: _value(each, column) for name, column in chosen.columns.items()} for each in things
    ]
    if form == "csv":
        return _csv(rows, list(chosen.columns) if heading else [])
    return "".join(json.dumps(row, default=_text, ensure_ascii=False) + "\n" for row in rows)


def _value(thing: Any, column: str | Callable[[Any], Any]) -> Any:
    if not isinstance(column, str):
        return column(thing)
    if isinstance(thing, dict):
        return thing[column]
    for name in column.split("."):
        thing = None if thing is None else getattr(thing, name)
    return thing


def _csv(rows: list[dict[str, Any]], heading: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    if heading:
        writer.writerow(heading)
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str | int:
    if value is None:
        return ""
    if isinstance(value, int):
        return value
    text = _text(value)
    # A spreadsheet must not execute the text of a record.
    return f"'{text}" if _FORMULA.match(text) else text


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
