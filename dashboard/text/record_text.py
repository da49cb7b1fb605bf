"""The display of a failed record and its stack trace."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from arrester.dashboard.text import named_fields
from arrester.domain.events import Body, Failure, StoredEvent
from arrester.domain.visible_text import visible

#: Further bytes are counted, not shown.
SHOWN_BYTES = 512
_BYTES_PER_LINE = 16
#: Where fields of a record are redacted: by the agent, or when the server reads a dead letter.
DRIVER, SERVER = "driver", "server"
#: The mark of agents for a text that they cut, and for bytes that are not text.
_CUT_MARK = "…[cut]"
_BASE64 = "base64:"
_PYTHON_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line \d+')
#: The number of the line in the name of a frame.
_PLACE = re.compile(r":(\d{1,9}) in ")
_JVM_FRAME = re.compile(r"^\s*(?:at (?P<method>[\w.$/@<>]+)|\.\.\. \d+ (?:more|common))")
_JVM_PLATFORM = re.compile(
    r"(?:java\.base/|jdk\.|java\.|javax\.|sun\.|com\.sun\.|scala\.|py4j\.|org\.apache\."
    r"|org\.sparkproject\.|io\.netty\.|org\.codehaus\.|io\.delta\.)"
)
_PLATFORM_PATH = re.compile(
    r"site-packages|dist-packages|/pyspark/|/py4j/|pyspark\.zip|_arrester_worker|/agents/"
    r"|/lib(64)?/python\d|^<frozen|importlib"
)


class Field(NamedTuple):
    """A field of a record: its text, or why there is none."""

    name: str
    text: str = ""
    missing: str = ""
    #: The agent kept only its beginning.
    cut: bool = False
    #: The failure names it, or the fields inside it.
    named: bool = False
    inside: frozenset[str] = frozenset()


class Line(NamedTuple):
    """A line of a stack trace; `own` for the user's code and its exception."""

    text: str
    own: bool


class CodeLine(NamedTuple):
    """A line of the author's code; `raised` for the one that raised."""

    number: int
    text: str
    raised: bool


class Fold(NamedTuple):
    """Consecutive lines of the user's code, or of the platform's, which can be folded."""

    own: bool
    lines: list[Line]

    @property
    def frames(self) -> int:
        """The number of calls in it."""
        return sum(1 for line in self.lines if _is_frame(line.text))


class Dump(NamedTuple):
    """The bytes of a field: the original ones, or its text in UTF-8."""

    name: str
    dump: str
    #: The number of bytes, and whether it is more than is shown.
    size: int
    cut: bool


def context(stored: StoredEvent | None) -> dict[str, Any]:
    """Return the context for the body of a RecordFailed; empty if there is none."""
    body = stored.event.body if stored else None
    failure = getattr(stored.event.data, "failure", None) if stored else None
    return of_body(body, failure) | {
        "sealed": stored if body and body.sealed else None,
        "code": code_lines(stored),
    }


def of_body(
    body: Body | None, failure: Failure | None = None, *, redacted: str = DRIVER
) -> dict[str, Any]:
    """Return the context for a body; `redacted` is where its fields were redacted."""
    return {
        "body": body,
        "redacted": redacted,
        "fields": fields(body, failure, redacted=redacted) if body else [],
        "columns": columns(body, failure) if body else [],
        "received_by": failure.stage if failure else "",
        "dumps": dumps(body) if body else [],
        "folds": folds(body.stack) if body and body.stack else [],
    }


def fields(body: Body, failure: Failure | None = None, *, redacted: str = DRIVER) -> list[Field]:
    """Return the fields of the source row, then the redacted ones.

    Those that the failure names are marked.
    """
    return _fields(body.record, failure) + [
        Field(name=name, missing=f"redacted on the {redacted}") for name in body.redacted
    ]


def columns(body: Body, failure: Failure | None = None) -> list[Field]:
    """Return the columns that the failed step received, marked in the same way."""
    return _fields(body.columns, failure)


def _fields(record: dict[str, Any] | None, failure: Failure | None) -> list[Field]:
    named = {} if failure is None or not record else named_fields.named(record, failure)
    return [
        _field(name, value)._replace(named=name in named, inside=named.get(name, frozenset()))
        for name, value in (record or {}).items()
    ]


def _field(name: str, value: Any) -> Field:
    if value is None:
        return Field(name=name, missing="NULL")
    if value == "":
        return Field(name=name, missing="empty")
    text = value if isinstance(value, str) else _json(value)
    return Field(name=name, text=text.removesuffix(_CUT_MARK), cut=text.endswith(_CUT_MARK))


def is_cut(value: Any) -> bool:
    """Whether a value, or a value in it, is the beginning of a longer one."""
    if isinstance(value, dict):
        return any(map(is_cut, value.values()))
    if isinstance(value, list):
        return any(map(is_cut, value))
    return isinstance(value, str) and value.endswith(_CUT_MARK)


def pretty(value: Any) -> str:
    """Return JSON for reading; invisible characters are escaped without a change of meaning."""
    return visible(_json(value))


def revealed(value: Any) -> str:
    """Return the value of a masked field for reading."""
    return visible(value) if isinstance(value, str) else pretty(value)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def trace(stack: str) -> Iterator[Line]:
    """Yield the lines of a trace, each marked as the user's or the platform's."""
    own = True
    for text in stack.splitlines():
        frame = _PYTHON_FRAME.match(text)
        if frame:
            own = _PLATFORM_PATH.search(frame["path"]) is None
        elif call := _JVM_FRAME.match(text):
            method = call["method"]
            own = method is not None and _JVM_PLATFORM.match(method) is None
        elif not text.startswith("    "):
            # Not the source line under a frame: a heading, or the exception itself.
            own = True
        yield Line(text=text, own=own)


def folds(stack: str) -> list[Fold]:
    """Return a trace split where the user's code and the platform's meet."""
    runs = groupby(trace(stack), key=lambda line: line.own)
    return [Fold(own=own, lines=list(lines)) for own, lines in runs]


def code_lines(stored: StoredEvent | None) -> list[CodeLine]:
    """Return the lines of code of a failed record; none if its event has none."""
    body = stored.event.body if stored else None
    failure = getattr(stored.event.data, "failure", None) if stored else None
    if body is None or body.source is None or failure is None:
        return []
    place = _PLACE.search(failure.frame or "")
    raised = int(place[1]) if place else 0
    numbered = enumerate(body.source.lines, body.source.first)
    return [CodeLine(number, text, number == raised) for number, text in numbered]


def _is_frame(text: str) -> bool:
    return bool(_PYTHON_FRAME.match(text) or _JVM_FRAME.match(text))


def dumps(body: Body) -> list[Dump]:
    """Return the bytes of each field that has a text: they show invisible characters."""
    texts = ((field.name, _bytes(field.text)) for field in fields(body) if field.text)
    return [Dump(name, hexdump(raw), len(raw), len(raw) > SHOWN_BYTES) for name, raw in texts]


def _bytes(text: str) -> bytes:
    if text.startswith(_BASE64):
        try:
            return base64.b64decode(text.removeprefix(_BASE64), validate=True)
        except binascii.Error:
            pass  # It only looks like it, or was cut.
    return text.encode(errors="surrogatepass")


def hexdump(raw: bytes) -> str:
    """Return the first bytes as offset, hexadecimal and text."""
    starts = range(0, min(len(raw), SHOWN_BYTES), _BYTES_PER_LINE)
    return "\n".join(_hex_line(start, raw[start : start + _BYTES_PER_LINE]) for start in starts)


def _hex_line(start: int, chunk: bytes) -> str:
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in chunk)
    return f"{start:08x}  {chunk.hex(' '):<47}  {text}"
