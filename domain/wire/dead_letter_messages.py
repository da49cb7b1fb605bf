"""A dead letter from its message in a Kafka topic.

Executors use this module too: it imports the standard library only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

PREFIX: Final = "__arrester."
#: The header with the id of a dead letter, which each message has.
ID: Final = f"{PREFIX}record.id"
#: The header that describes how the source row is found: see `_row`.
SOURCE: Final = f"{PREFIX}source"
#: The value of `SOURCE` if the value of the message is the source row as JSON.
VALUE_IS_ROW: Final = '"value"'
#: The end of a header that was cut because the message was too large.
CUT_MARK: Final = "…[cut]"
_NEEDED: Final = ("checkpoint", "at")
_MISSING: Final = (
    "has no header {}: an earlier version of Arrester has written it, or "
    "errors.deadletterqueue.context.headers.enable is false"
)
_NO_ROW: Final = (
    "does not contain its source row: set errors.dlq.include.messages, unless the source is a Kafka"
    " topic and errors.dlq.converter is not set"
)


@dataclass(frozen=True)
class Message:
    """A dead letter that was read from a topic. `problem`: why its row is not known."""

    id: str | None = None
    application: str | None = None
    checkpoint: str | None = None
    task: str | None = None
    position: int | None = None
    stage: str | None = None
    row: str | None = None
    at: datetime | None = None
    problem: str | None = None


def dead_letter_of(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> Message:
    """Return the dead letter in a message.

    The record's own headers come first. Those from the last `ID` on are of this dead letter: a
    record that was a dead letter before has the headers of the earlier one too.
    """
    ours = _own_headers(headers)
    id, application = ours.get(ID.removeprefix(PREFIX)), ours.get("application")
    if id is None:
        return Message(problem=f"is no dead letter: it has no header {ID}")
    for name in _NEEDED:
        if ours.get(name) is None:
            return Message(
                id=id, application=application, problem=_MISSING.format(f"{PREFIX}{name}")
            )
    cut = [
        name for name in (*_NEEDED, "task", "stage") if (ours.get(name) or "").endswith(CUT_MARK)
    ]
    if cut:
        problem = f"was too large, and its header {PREFIX}{cut[0]} was cut"
        return Message(id=id, application=application, problem=problem)
    try:
        row, position = _row(key, value, headers, ours), ours.get("position")
        at, number = datetime.fromisoformat(str(ours["at"])), int(position) if position else None
    except (ValueError, TypeError) as exc:
        problem = f"has an invalid header ({type(exc).__name__}: {exc})"
        return Message(id=id, application=application, problem=problem)
    if row is None:
        return Message(id=id, application=application, problem=_NO_ROW)
    return Message(
        id=id,
        application=application,
        checkpoint=ours["checkpoint"],
        task=ours.get("task"),
        position=number,
        stage=ours.get("stage"),
        row=row,
        at=at,
    )


def _own_headers(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, str | None]:
    """Return the headers of the dead letter by name, without those of its record."""
    first = max((index for index, (name, _) in enumerate(headers) if name == ID), default=0)
    ours = (each for each in headers[first:] if each[0].startswith(PREFIX))
    return {name.removeprefix(PREFIX): _text(content) for name, content in ours}


def _row(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    ours: Mapping[str, str | None],
) -> str | None:
    """Return the source row as JSON; None if the message does not contain it.

    It is a header, or the value, or has the key, the value and the first headers of the message. In
    the last case the header `SOURCE` has the other columns, and in place of key and value their
    types, and in place of the headers their number.
    """
    row = ours.get("row")
    if row is not None and not row.endswith(CUT_MARK):
        return row
    source = ours.get("source")
    if source is None:
        return None
    if source == VALUE_IS_ROW:
        return _text(value)
    columns: Any = json.loads(source)
    if not isinstance(columns, dict):
        raise ValueError(f"{SOURCE} is no object")
    for name, content in (("key", key), ("value", value)):
        if name in columns:
            columns[name] = _base64(content) if columns[name] == "binary" else _text(content)
    if columns.get("headers") is not None:
        own = headers[: int(columns["headers"])]
        columns["headers"] = [{"key": name, "value": _base64(content)} for name, content in own]
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"))


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
