"""Resolution of Avro's logical types from the schema of the writer to that of the reader.

Avro resolves the underlying types only, and Spark reads the result by the reader's logical type: a
decimal(10,4) is read as a decimal(10,2) with other digits. The specification has two decimals match
only if scale and precision match.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

#: A part of a schema as JSON: the name of a type, a type, or the branches of a union.
Schema = Any

_BASES: Final[Mapping[str, tuple[str, ...]]] = {
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **{
        f"{kind}-{unit}": ("long",)
        for kind in ("timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    },
    "duration": ("fixed",),
}
#: Spark has one type for each of these, and reads them exactly.
_EXACT: Final = (
    frozenset({"timestamp-millis", "timestamp-micros"}),
    frozenset({"local-timestamp-millis", "local-timestamp-micros"}),
)
_NAMED: Final = ("record", "error", "enum", "fixed")
#: What Avro reads as another type.
_PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_CACHED_PAIRS: Final = 1_000


@dataclass(frozen=True, slots=True)
class LogicalType:
    """A logical type, which Avro ignores unless it is valid; or none, of an underlying type."""

    name: str | None
    base: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return self.name or self.base


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that the reader would misread: its path, and both types."""

    path: str
    written: LogicalType
    read: LogicalType

    def __str__(self) -> str:
        return f"{self.path} was written as {self.written}, and is read as {self.read}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a reader reads values of a writer: by `schema`, unless there are differences."""

    #: The reader's, with the writer's units of timestamps.
    schema: str
    differences: tuple[Difference, ...] = ()


@lru_cache(maxsize=_CACHED_PAIRS)
def resolution(written: str, read: str) -> Resolution:
    """Return the resolution of two schemas, as JSON texts.

    Spark reports a text that is no schema.
    """
    try:
        comparison = _Comparison(json.loads(written), json.loads(read))
        comparison.compare()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Resolution(read)
    if not comparison.units:
        return Resolution(read, tuple(comparison.differences))
    return Resolution(comparison.edited(), tuple(comparison.differences))


@dataclass(slots=True)
class _Comparison:
    writer: Schema
    reader: Schema
    differences: list[Difference] = field(default_factory=list)
    #: By the id of a part of the reader: the part, and the writer's logical type for it.
    units: dict[int, tuple[dict[str, Any], str]] = field(default_factory=dict)
    _known: dict[int, LogicalType] = field(default_factory=dict)
    _seen: set[tuple[int, int]] = field(default_factory=set)
    _written: dict[str, dict[str, Any]] = field(default_factory=dict)
    _read: dict[str, dict[str, Any]] = field(default_factory=dict)

    def compare(self) -> None:
        """Find all differences."""
        self.reader = copy.deepcopy(self.reader)
        self._written = dict(_named_types(self.writer, ""))
        self._read = dict(_named_types(self.reader, ""))
        self._compare(self.writer, self.reader, "")

    def edited(self) -> str:
        """Return the reader's schema with the writer's units."""
        for part, unit in self.units.values():
            part["logicalType"] = unit
        return json.dumps(self.reader)

    def _compare(self, writer: Schema, reader: Schema, path: str) -> None:
        writer, reader = _opened(writer, self._written), _opened(reader, self._read)
        if isinstance(writer, list):
            for branch in writer:
                self._compare(branch, reader, path)
            return
        if isinstance(reader, list):
            branch = self._branch_for(writer, reader)
            if branch is not None:
                self._compare(writer, branch, path)
            return
        self._compare_types(writer, reader, path)

    def _compare_types(self, writer: Schema, reader: Schema, path: str) -> None:
        kinds = _kind(writer), _kind(reader)
        if kinds == ("array", "array"):
            self._compare(writer["items"], reader["items"], _joined(path, "element"))
        elif kinds == ("map", "map"):
            self._compare(writer["values"], reader["values"], _joined(path, "value"))
        elif kinds[0] in ("record", "error") and kinds[1] in ("record", "error"):
            # A record may contain itself.
            if (id(writer), id(reader)) not in self._seen:
                self._seen.add((id(writer), id(reader)))
                self._compare_fields(writer, reader, path)
        else:
            self._compare_values(_logical(writer), _logical(reader), reader, path)

    def _compare_fields(self, writer: Schema, reader: Schema, path: str) -> None:
        fields = {each["name"]: each for each in writer["fields"]}
        for each in reader["fields"]:
            names = [each["name"], *each.get("aliases", ())]
            found = next((fields[name] for name in names if name in fields), None)
            if found is not None:
                self._compare(found["type"], each["type"], _joined(path, each["name"]))

    def _compare_values(
        self, written: LogicalType, read: LogicalType, reader: Schema, path: str
    ) -> None:
        if read.base not in (written.base, *_PROMOTIONS.get(written.base, ())):
            return  # Avro refuses the value.
        # One named type of the reader may have several of the writer.
        is_other = self._known.setdefault(id(reader), written) != written
        if _is_misread(written, read):
            is_unit = {written.name, read.name} in _EXACT
            if not is_unit or (is_other and isinstance(reader, dict)):
                self.differences.append(Difference(path or "the value", written, read))
            else:
                assert written.name is not None
                self.units[id(reader)] = reader, written.name
        elif id(reader) in self.units:
            self.differences.append(Difference(path or "the value", written, read))

    def _branch_for(self, writer: Schema, branches: list[Schema]) -> Schema | None:
        """Return the branch of a union that Avro selects: of the same type, else a promotion."""
        opened = [_opened(each, self._read) for each in branches]
        kind, name = _kind(writer), _simple_name(writer)
        alike = [each for each in opened if _kind(each) == kind]
        same_name = [each for each in alike if _simple_name(each) == name]
        promoted = [each for each in opened if _kind(each) in _PROMOTIONS.get(kind, ())]
        return next(iter([*same_name, *alike, *promoted]), None)


def _is_misread(written: LogicalType, read: LogicalType) -> bool:
    """Whether a value has another meaning for the reader."""
    if written.name == read.name == "decimal":
        return written.scale != read.scale or written.precision > read.precision
    if read.name is None:
        # The reader asked for the underlying type. The digits of a decimal are no text.
        return written.name in ("decimal", "big-decimal") and read.base == "string"
    if written.name is None and read.name == "uuid":
        return False
    return written.name != read.name


def _named_types(schema: Schema, space: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the named types in a schema by their full name, and their name in a default space."""
    if isinstance(schema, list):
        for each in schema:
            yield from _named_types(each, space)
    elif isinstance(schema, dict):
        kind = schema["type"]
        if kind in _NAMED:
            before, _, name = str(schema["name"]).rpartition(".")
            space = before or schema.get("namespace", space)
            yield name, schema
            yield f"{space}.{name}", schema
        for each in schema.get("fields", ()):
            yield from _named_types(each["type"], space)
        inner = kind if isinstance(kind, dict | list) else None
        for part in (inner, schema.get("items"), schema.get("values")):
            yield from _named_types(part, space)


def _opened(schema: Schema, named: Mapping[str, dict[str, Any]]) -> Schema:
    """Return the type that a name or `{"type": …}` has in the schema."""
    while isinstance(schema, dict) and not isinstance(schema["type"], str):
        schema = schema["type"]
    name = schema["type"] if isinstance(schema, dict) else schema
    return named.get(name, schema) if isinstance(name, str) else schema


def _kind(schema: Schema) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _simple_name(schema: Schema) -> str | None:
    name = schema.get("name") if isinstance(schema, dict) else None
    return None if name is None else str(name).rpartition(".")[2]


def _logical(schema: Schema) -> LogicalType:
    base = _kind(schema)
    name = schema.get("logicalType") if isinstance(schema, dict) else None
    if not isinstance(name, str) or base not in _BASES.get(name, ()):
        return LogicalType(None, base)
    if name != "decimal":
        return LogicalType(name, base)
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not 0 <= scale <= precision:
        return LogicalType(None, base)
    return LogicalType(name, base, precision, scale)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
