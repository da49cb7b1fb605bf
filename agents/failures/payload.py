"""The reported parts of a failed record: its row as JSON, its location and its stack trace.

All are redacted and limited in size.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

from msgspec.structs import replace
from pyspark.sql import Row
from pyspark.sql import types as T

from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.native_diagnosis import Received
from arrester.agents.spark.sources.kafka_source import COORDINATES
from arrester.agents.worker.redactor import Redactor
from arrester.domain.events import Body, SourceLines
from arrester.domain.wire.sealed_fields import MaskedField, MaskedFields, seal

_log = logging.getLogger("arrester.thread")
#: A longer record, in bytes, is cut, and the body has its size.
RECORD_BYTES = 16 * 1024
_TRUNCATED = "…[cut]"
#: Kafka's rule for topic names; a column of that name may have any value.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: Where a stack trace continues after a message, in Python or Java.
_GOES_ON = re.compile(
    r'Traceback \(most recent|  File "|\t+at |\t+\.\.\. |\s*(Caused by|Suppressed): '
    r"|The above exception was the direct|During handling of the above"
)
#: The beginnings of lines that contain no exception message.
_NO_MESSAGE = re.compile(r"\s|Traceback |The above |During handling |$")
#: Python's lines between and inside the members of an exception group.
_OF_GROUP = re.compile(r" *(\+-[-+]*( \d+ -+)?$|\+ Exception Group Traceback )")
#: A text in code after `=` or `:`.
_ASSIGNED = re.compile(r"""([=:]\s*[rbufRBUF]{0,2})(['"])(?:(?!\2).)*\2""")
_HIDDEN = "…"
_INSIDE = re.compile(r" *\| ")


class Reveal(NamedTuple):
    """For whom the values of dropped fields are encrypted."""

    application: str
    #: The Ed25519 public key of the server.
    server_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The rules for what may leave the driver of a record.

    A field is dropped if its name contains one of the names in `drop` (case-insensitive, at any
    depth, also inside JSON texts), or if it is at a path in `drop` (`$.card.number`). A text that
    begins as JSON, is unreadable and names such a field is not shown at all. With `only`, a field
    leaves only if its name, its path or the path of a parent is listed. `builtin` drops as `drop`
    does, except `key`: the top-level column that the author declared as the record's key.
    `key_names` are the names in the key's expression. Names in maps and JSON are data: above an
    allowed field they are hidden, unless they are in `fields`.
    """

    drop: Sequence[str] = ()
    builtin: Sequence[str] = ()
    only: Sequence[str] | None = None
    key: str | None = None
    key_names: Sequence[str] = ()
    #: The source's field names at any depth. Any other name below a column is data.
    fields: Collection[str] = ()
    #: How dropped values are encrypted; None: they are lost.
    reveal: Reveal | None = None

    def body(
        self,
        row: Mapping[str, Any],
        *,
        received: Received | None = None,
        stack: str | None,
        source: SourceLines | None = None,
    ) -> Body:
        """Return the body of a failed record, without values of dropped fields.

        What the failed step received may have a dropped value under another name, so it is left out
        if the steps before read a column that has one, of the source or of a step.
        """
        redactor, allowed = self._redacted(row)
        record, size = _truncated(_sound(allowed))
        columns = None
        if received is not None and self.only is None:
            of_steps, kept = self._redacted(received.columns)
            if not received.read & (redactor.columns | of_steps.columns):
                columns, _ = _truncated(_sound(kept))
        return Body(
            record=record,
            redacted=tuple(_sound(redactor.dropped_paths)),
            sealed=self._sealed(redactor, record),
            cut_from=size,
            columns=columns,
            stack=_sound(None if stack is None else redactor.redact_text(stack)),
            source=None if source is None else _redacted_source(redactor, source, self.rules),
        )

    def _sealed(self, redactor: Redactor, record: dict[str, Any]) -> bytes | None:
        """Return the dropped values that the record's limit has space for, encrypted."""
        if self.reveal is None or not redactor.dropped:
            return None
        space, fields, omitted = RECORD_BYTES - _size(record), [], 0
        for path, value in redactor.dropped:
            field = MaskedField(path=_sound(path), value=_sound(value))
            size = _size(field.path) + _size(field.value)
            if size <= space:
                space -= size
                fields.append(field)
            else:
                omitted += 1
        application, key = self.reveal
        found = MaskedFields(fields=tuple(fields), omitted=omitted)
        return seal(found, application=application, server_key=key)

    def allowed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the allowed parts of a row's fields as JSON."""
        return self._redacted(row)[1]

    def texts(self, row: Mapping[str, Any], *texts: str | None) -> list[str | None]:
        """Return texts about a record without the values of its dropped fields.

        Exact values are found; parts of values, derived values and values of fewer than four
        characters are not.
        """
        redactor, _ = self._redacted(row)
        return [None if text is None else redactor.redact_text(text) for text in texts]

    @property
    def rules(self) -> tuple[str, ...]:
        """All dropping rules."""
        return (*self.drop, *self.builtin)

    @property
    def shown_key(self) -> str | None:
        """The column that stays regardless of its name, if any."""
        return self.key if self.key is not None and self.shows_key else None

    @property
    def shows_key(self) -> bool:
        """Whether the record's key leaves the driver: no rule in `drop` names a part of it."""
        redactor = Redactor(self.drop, self.only)
        if self.only is not None and not (self.key is not None and redactor.names(self.key)):
            return False
        return not any(redactor.forbids(name) for name in (self.key or "", *self.key_names))

    def _redacted(self, row: Mapping[str, Any]) -> tuple[Redactor, dict[str, Any]]:
        redactor = Redactor(self.rules, self.only, self.fields)
        return redactor, redactor.row({name: jsonable(row[name]) for name in row}, self.shown_key)


def _redacted_source(redactor: Redactor, source: SourceLines, rules: Sequence[str]) -> SourceLines:
    """Return lines of code without the values of dropped fields.

    A text that a line assigns is hidden if the line has the name of a dropped field.
    """
    names = [name.lower() for rule in rules if (name := rule.strip("$.*"))]
    lines = []
    for line in source.lines:
        text = redactor.redact_text(line)
        if any(name in text.lower() for name in names):
            text = _ASSIGNED.sub(rf"\1\2{_HIDDEN}\2", text)
        lines.append(_sound(text))
    return replace(source, lines=tuple(lines))


class UnmatchedRules:
    """The redaction rules of a run that match no field: one warning, as soon as it is certain.

    Texts may be JSON, and maps have names of their own: then the first failed records decide.
    """

    def __init__(self, pipeline: str, rules: Sequence[str], source: T.StructType) -> None:
        self._pipeline = pipeline
        self._columns = ", ".join(source.names)
        self._rules = [rule for rule in rules if not _matches(rule, _sample(source))]
        if not _may_have_more_names(source):
            self._warn("")

    def check(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Warn of rules that match nothing in the failed records of a micro-batch either."""
        if not self._rules or not rows:
            return
        records = [{name: jsonable(row[name]) for name in row} for row in rows]
        self._rules = [
            rule for rule in self._rules if not any(_matches(rule, each) for each in records)
        ]
        self._warn(f", nor a field in the first failed records ({len(records)})")

    def _warn(self, where: str) -> None:
        if self._rules:
            message = (
                "pipeline %r: redaction of %s masks nothing: it matches no column or field of the "
                "source (%s)%s. Check the spelling in errors.redact and redact="
            )
            names = ", ".join(map(repr, self._rules))
            _log.warning(message, self._pipeline, names, self._columns, where)
        self._rules = []


def _matches(rule: str, row: dict[str, Any]) -> bool:
    redactor = Redactor([rule])
    redactor.row(row, None)
    return bool(redactor.dropped_paths)


def _sample(kind: T.DataType) -> Any:
    """Return a value with all field names of a type."""
    match kind:
        case T.StructType():
            return {field.name: _sample(field.dataType) for field in kind.fields}
        case T.ArrayType():
            return [_sample(kind.elementType)]
        case T.MapType():
            return {"": _sample(kind.valueType)}
        case _:
            return None


def _may_have_more_names(kind: T.DataType) -> bool:
    """Whether values have field names that are not in the type."""
    match kind:
        case T.StructType():
            return any(_may_have_more_names(field.dataType) for field in kind.fields)
        case T.ArrayType():
            return _may_have_more_names(kind.elementType)
        case _:
            # By name: not every version of PySpark has VariantType.
            names = ("MapType", "StringType", "BinaryType", "VariantType")
            return type(kind).__name__ in names


def jsonable(value: Any) -> Any:
    """Return `value` for JSON: times as ISO 8601; bytes (or `base64:…`), decimals, NaN as text."""
    if isinstance(value, Row):
        return {name: jsonable(item) for name, item in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(jsonable(key)): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return "base64:" + base64.b64encode(bytes(value)).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if value is None or isinstance(value, str | bool | int):
        return value
    if type(value).__name__ == "VariantVal":
        return json.loads(value.toJson())
    return str(value) if isinstance(value, Decimal) else repr(value)


def _sound(value: Any) -> Any:
    """Return JSON whose texts can be written as UTF-8: an unpaired surrogate becomes `?`."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_sound(name): _sound(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_sound(item) for item in value]
    return value


def _truncated(record: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Return the record within the size limit, and its original size if it was cut."""
    size = _size(record)
    if size <= RECORD_BYTES:
        return record, None
    share = max(64, RECORD_BYTES // (2 * max(1, len(record))))
    fields: dict[str, Any] = {}
    for name, value in record.items():
        # With thousands of columns even the names must be limited.
        if _size(fields) + share + len(name) > RECORD_BYTES:
            fields["…"] = f"{len(record) - len(fields)} more fields"
            break
        fields[name] = value
        if _size(value) > share:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            fields[name] = text.encode()[:share].decode(errors="ignore") + _TRUNCATED
    return fields, size


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def location_of(each: FailedRecord, redaction: Redaction) -> str:
    """Return a record's task and position, and for Kafka its topic, partition and offset.

    Redaction applies to the Kafka coordinates; task and position are identities and always stay.
    """
    location = f"task {each.task!r}, position {each.position}"
    coordinates = _coordinates(each.row.asDict(), redaction) if is_of_kafka(each) else {}
    texts = ", ".join(f"{name} {value}" for name, value in coordinates.items())
    return f"{location} ({texts})" if texts else location


def is_of_kafka(each: FailedRecord) -> bool:
    """Whether the source row has Kafka's coordinates."""
    return each.row.asDict().keys() >= COORDINATES


def _coordinates(row: Mapping[str, Any], redaction: Redaction) -> dict[str, object]:
    allowed = redaction.allowed({name: row[name] for name in ("topic", "partition", "offset")})
    return {name: value for name, value in allowed.items() if _is_coordinate(name, value)}


def _is_coordinate(name: str, value: object) -> bool:
    if name == "topic":
        return isinstance(value, str) and _TOPIC.fullmatch(value) is not None
    return isinstance(value, int)


def with_first_lines(trace: str, exception_class: str) -> str:
    """Return a stack trace with only the first line of each message.

    No other place shows more of a message, because the rest may quote the record. The beginning of
    a Python stack trace may be cut, possibly inside a message.
    """
    lines, in_message = [], not trace.startswith(exception_class)
    for line in trace.splitlines():
        plain = _INSIDE.sub("", line)
        if in_message and not _GOES_ON.match(plain) and not _OF_GROUP.match(line):
            continue
        lines.append(line)
        of_java = plain.lstrip().startswith(("Caused by: ", "Suppressed: "))
        in_message = of_java or not (_NO_MESSAGE.match(plain) or _OF_GROUP.match(line))
    return "\n".join(lines)
