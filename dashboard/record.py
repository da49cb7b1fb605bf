"""How a failed record and its stack trace are laid out for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from controlplane.domain.events import Body, StoredEvent

#: Raw bytes beyond this are counted, not shown.
SHOWN_BYTES = 512
_BYTES_PER_LINE = 16
_PYTHON_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line \d+')
_JVM_FRAME = re.compile(r"^\s*(at |\.\.\. \d+ more)")
_NOT_YOURS = re.compile(
    r"site-packages|dist-packages|/pyspark/|/py4j/|pyspark\.zip|_arrester_worker|/agents/"
    r"|/lib(64)?/python\d|^<frozen|importlib"
)


class Field(NamedTuple):
    """A field of a record: its text, or why there is none."""

    name: str
    text: str = ""
    missing: str = ""


class Line(NamedTuple):
    """A line of a stack trace; `own` for the user's code and for what it raised."""

    text: str
    own: bool


def shown(stored: StoredEvent | None) -> dict[str, Any]:
    """Return what the templates show of the body of a RecordFailed; nothing where there is none."""
    body = stored.event.body if stored else None
    return {
        "body": body,
        "fields": fields(body) if body else [],
        "trace": trace(body.stack) if body and body.stack else [],
    }


def fields(body: Body) -> list[Field]:
    """Return the fields of the source row, then those that never left the driver."""
    record = body.record or {}
    shown = [_field(name, value) for name, value in record.items()]
    return shown + [Field(name=name, missing="redacted on the driver") for name in body.redacted]


def _field(name: str, value: Any) -> Field:
    if value is None:
        return Field(name=name, missing="NULL")
    if value == "":
        return Field(name=name, missing="empty")
    return Field(name=name, text=value if isinstance(value, str) else pretty(value))


def pretty(value: Any) -> str:
    """Return JSON for reading."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def trace(stack: str) -> list[Line]:
    """Return the lines of a trace, each told whether it is the user's or the platform's."""
    return list(_told_apart(stack.splitlines()))


def _told_apart(lines: Iterable[str]) -> Iterator[Line]:
    own = True
    for text in lines:
        frame = _PYTHON_FRAME.match(text)
        if frame:
            own = _NOT_YOURS.search(frame["path"]) is None
        elif _JVM_FRAME.match(text):
            own = False
        elif not text.startswith("    "):
            # Not the source line under a frame: a heading, or the exception itself.
            own = True
        yield Line(text=text, own=own)


def hexdump(raw: bytes) -> str:
    """Return the first bytes as offset, hexadecimal and text."""
    starts = range(0, min(len(raw), SHOWN_BYTES), _BYTES_PER_LINE)
    return "\n".join(_hex_line(start, raw[start : start + _BYTES_PER_LINE]) for start in starts)


def _hex_line(start: int, chunk: bytes) -> str:
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in chunk)
    return f"{start:08x}  {chunk.hex(' '):<47}  {text}"
