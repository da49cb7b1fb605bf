"""Export of a filtered list as a file: CSV or JSON lines, streamed page by page.

Only one page is in memory; when the client stops reading, so does the export.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.http import Http404, HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from arrester.controlplane import queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.domain.state.states import CommandState, GroupState
from arrester.dashboard.components import filters
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.text import audit_text, event_text

ROWS_PER_PAGE = 500
FORMS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}
#: A spreadsheet would read these as the start of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
Row = dict[str, Any]
#: Reads the page after a cursor.
Read = Callable[[str | None], queries.Page[Any]]


class Export(NamedTuple):
    """A list that can be exported: how its pages are read, and its rows."""

    read: Callable[[QueryDict, datetime], Read]
    row: Callable[[Any], Row]
    #: The names of a row's values, also written to a file without rows.
    columns: str


def _errors(asked: QueryDict, now: datetime) -> Read:
    wanted, sort = filters.of_groups(asked, now=now), filters.sort_of_groups(asked)
    return lambda cursor: queries.groups(wanted, sort=sort, cursor=cursor, limit=ROWS_PER_PAGE)


def _audit(asked: QueryDict, now: datetime) -> Read:
    wanted = filters.of_audit(asked, now=now)
    return lambda cursor: queries.audit(wanted, cursor=cursor, limit=ROWS_PER_PAGE)


def _dead_letters(asked: QueryDict, now: datetime) -> Read:
    wanted = filters.of_dead_letters(asked, now=now)
    return lambda cursor: queries.dead_letters(wanted, cursor=cursor, limit=ROWS_PER_PAGE)


def _commands(asked: QueryDict, now: datetime) -> Read:
    wanted = filters.of_commands(asked)
    return lambda cursor: queries.commands(**wanted, cursor=cursor, limit=ROWS_PER_PAGE)


def _history(asked: QueryDict, now: datetime) -> Read:
    task = asked.get("task", "")
    return lambda cursor: queries.task_history(task, cursor=cursor, limit=ROWS_PER_PAGE)


def _group_row(group: GroupState) -> Row:
    return {
        "application": group.application,
        "fingerprint": group.fingerprint,
        "state": group.status.value,
        "exception_class": group.exception_class,
        "message": group.message,
        "pipeline": group.pipeline,
        "stage": group.stage,
        "frame": group.frame,
        "records": group.count,
        "estimated": group.estimated,
        "first_seen": group.first_seen,
        "last_seen": group.last_seen,
        "notes": group.notes,
    }


def _act_row(act: queries.Act) -> Row:
    if act.change is not None:
        what, about, position = act.change.detail, act.change.account, None
        kind, application, instance = act.change.act, None, None
    else:
        assert act.event is not None
        kind, application = act.event.event.type, act.event.application
        instance = act.event.event.instance
        what, about = audit_text.words_of(act.event.event.data), audit_text.about(act.event)
        position = act.event.sequence
    return {
        "at": act.at,
        "actor": act.actor,
        "kind": kind,
        "application": application,
        "about": about,
        "what": what,
        "position": position,
        "instance": instance and str(instance),
        "status": act.status and act.status.value,
    }


def _letter_row(stored: StoredEvent) -> Row:
    data: Any = stored.event.data
    run = stored.event.run
    return {
        "at": stored.event.occurred_at,
        "application": stored.application,
        "pipeline": run and run.pipeline,
        "checkpoint": run and run.checkpoint,
        "task": data.task,
        "records": data.count,
        "first_position": data.first_position,
        "last_position": data.last_position,
        "place": data.place,
        "format": data.format,
        "actor": data.actor,
        "reason": data.reason,
        "ids": " ".join(data.ids),
        "position": stored.sequence,
    }


def _command_row(command: CommandState) -> Row:
    return {
        "id": str(command.id),
        "kind": command.kind.value,
        "application": command.application,
        "task": command.task and command.task.printed,
        "actor": command.actor,
        "reason": command.reason,
        "state": command.status.value,
        "outcome": command.outcome,
        "issued_at": command.issued_at,
        "delivered_at": command.delivered_at,
        "finished_at": command.finished_at,
        "expires_at": command.expires_at,
    }


def _event_row(stored: StoredEvent) -> Row:
    return {
        "position": stored.sequence,
        "occurred_at": stored.event.occurred_at,
        "received_at": stored.received_at,
        "type": stored.event.type,
        "what": event_text.sentence(stored.event.data),
        "epoch": stored.event.run and stored.event.run.epoch,
        "caused_by": stored.event.caused_by and str(stored.event.caused_by),
    }


EXPORTS = {
    "errors": Export(
        _errors,
        _group_row,
        (
            "application fingerprint state exception_class message pipeline stage frame "
            "records estimated first_seen last_seen notes"
        ),
    ),
    "audit": Export(
        _audit,
        _act_row,
        "at actor kind application about what position instance status",
    ),
    "dead-letters": Export(
        _dead_letters,
        _letter_row,
        (
            "at application pipeline checkpoint task records first_position "
            "last_position place format actor reason ids position"
        ),
    ),
    "commands": Export(
        _commands,
        _command_row,
        (
            "id kind application task actor reason state outcome issued_at delivered_at "
            "finished_at expires_at"
        ),
    ),
    "history": Export(
        _history,
        _event_row,
        "position occurred_at received_at type what epoch caused_by",
    ),
}


@require_GET
@for_people
def export(request: HttpRequest, who: Person, what: str, form: str) -> HttpResponse:
    """Stream a list as filtered by its page's URL, from beginning to end."""
    if what not in EXPORTS or form not in FORMS:
        raise Http404(f"{what}.{form}")
    if "after" in request.GET:
        raise InvalidValue("after", request.GET["after"], "nothing: an export is the whole list")
    chosen = EXPORTS[what]
    read = chosen.read(request.GET, timezone.now())
    # Read here, so that faults are reported before the first byte.
    first = read(None)
    said = stream(first, read, partial(_packed, chosen, form))
    answer = StreamingHttpResponse(said, content_type=FORMS[form])
    answer["Content-Disposition"] = f'attachment; filename="{what}.{form}"'
    return answer  # type: ignore[return-value]  # Django's stubs: a response like any other


async def stream(
    page: queries.Page[Any], read: Read, pack: Callable[[Iterable[Any], bool], str]
) -> AsyncIterator[str]:
    """Yield one packed page after the other, the first with the heading."""
    yield pack(page.rows, True)
    while page.next is not None:
        page = await sync_to_async(read)(page.next)
        yield pack(page.rows, False)


def _packed(chosen: Export, form: str, things: Iterable[Any], heading: bool) -> str:
    rows = [chosen.row(each) for each in things]
    if form == "csv":
        return _csv(rows, chosen.columns.split() if heading else [])
    return _json_lines(rows)


def _csv(rows: list[Row], heading: Sequence[str]) -> str:
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
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    # A spreadsheet must not execute the text of a record.
    return f"'{text}" if text.startswith(_FORMULA) else text


def _json_lines(rows: list[Row]) -> str:
    return "".join(
        json.dumps(row, default=lambda value: value.isoformat(), ensure_ascii=False) + "\n"
        for row in rows
    )
