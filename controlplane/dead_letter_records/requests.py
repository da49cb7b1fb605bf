"""Requests for records: a page asks, a worker reads, and Redis has the answer for ten minutes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from django.conf import settings
from kombu.exceptions import OperationalError

from arrester.controlplane import queries
from arrester.controlplane.dead_letter_records import files, masking, topics
from arrester.controlplane.redis import redis_client
from arrester.domain.errors import NotFound
from arrester.domain.events import Body
from arrester.domain.identity import redis_keys
from arrester.domain.python_versions import StrEnum

#: The name of the Celery task.
TASK = "arrester.read_dead_letter"
KEPT_SECONDS = 600
#: A request is made again if no worker has fulfilled it in this time.
PENDING_SECONDS = 30
#: A larger record is cut.
MAX_BYTES = 1_000_000


class State(StrEnum):
    """The state of a request."""

    PENDING = "PENDING"
    READY = "READY"
    FAILED = "FAILED"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a dead letter, or why there is none yet."""

    state: State
    #: Why it cannot be read.
    reason: str = ""
    body: Body | None = None


def request(wanted: queries.DeadLetter) -> Record:
    """Return the record if it was read; else let a worker read it."""
    environment = settings.ENVIRONMENT
    if wanted.format == topics.FORMAT:
        missing = None if environment.dead_letter_topics else topics.NO_TOPICS
    else:
        missing = None if environment.dead_letter_roots else files.NO_ROOTS
    if missing is not None:
        return Record(state=State.FAILED, reason=missing)
    client = redis_client.client()
    key = redis_keys.dead_letter_record(wanted.application, wanted.id)
    pending = Record(state=State.PENDING)
    try:
        found = redis_client.decode_json(_bytes(client.get(key)), Record)
        if found is not None:
            return found
        if client.set(key, msgspec.json.encode(pending), nx=True, ex=PENDING_SECONDS):
            _send(wanted.application, wanted.id)
    except (redis_client.RedisError, OperationalError):
        return Record(state=State.FAILED, reason="Redis does not answer. Reload the page later.")
    return pending


def _send(application: str, id: str) -> None:
    # Web processes load Celery only for this.
    from arrester.controlplane.celery import app

    app.send_task(TASK, args=(application, id), retry=False, expires=PENDING_SECONDS)


def fulfil(application: str, id: str) -> None:
    """Read a record, and store it in Redis."""
    key = redis_keys.dead_letter_record(application, id)
    redis_client.client().set(key, msgspec.json.encode(_read(application, id)), ex=KEPT_SECONDS)


def _read(application: str, id: str) -> Record:
    environment = settings.ENVIRONMENT
    try:
        found = queries.dead_letter(application, id)
        row = _row(found)
    except (files.RecordUnavailable, NotFound) as exc:
        return Record(state=State.FAILED, reason=str(exc))
    rules = [*environment.dead_letter_redact, *_redacted_by_agent(found)]
    return Record(state=State.READY, body=_body(row, rules))


def _row(found: queries.DeadLetter) -> str:
    environment = settings.ENVIRONMENT
    if found.format == topics.FORMAT:
        return topics.read_row(
            found.place,
            application=found.application,
            id=found.id,
            topics=environment.dead_letter_topics,
        )
    return files.read_row(
        found.place,
        found.format,
        application=found.application,
        id=found.id,
        roots=environment.dead_letter_roots,
    )


def _redacted_by_agent(found: queries.DeadLetter) -> tuple[str, ...]:
    """Return the paths of the fields that the agent redacted in the newest example of the cause."""
    group = found.group
    if group is None or not group.example_sequence:
        return ()
    try:
        body = queries.event(group.application, group.example_sequence).event.body
    except NotFound:  # retention has dropped it
        return ()
    return () if body is None else body.redacted


def _body(row: str, rules: list[str]) -> Body:
    """Return a row as the body of an event, masked and of limited size."""
    paths: list[str] = []
    try:
        record: Any = json.loads(row)
    except ValueError:
        record = {"row": row}
    record = masking.masked(record if isinstance(record, dict) else {"row": record}, rules, paths)
    size = len(row.encode())
    cut_from = size if size > MAX_BYTES else None
    if cut_from is not None:
        record = {
            name: _cut(value, MAX_BYTES // max(1, len(record))) for name, value in record.items()
        }
    return Body(record=record, redacted=tuple(paths[:100]), cut_from=cut_from)


def _cut(value: Any, characters: int) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= characters else f"{text[:characters]}…[cut]"


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None
