"""Read the author's rows from an Arrow batch as dicts, remembering the origin of each value."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .columns import PREFIX
from .errors import text

Row = dict[str, Any]


class Unreadable(ValueError):
    """A column of a record cannot become a Python value; the message names column, type and
    reason."""


@dataclass(frozen=True)
class Origin:
    """A column as received: the array and its values, and those of its fields if it is a struct."""

    array: Any
    values: list[Any]
    fields: dict[str, Origin] = field(default_factory=dict)


@dataclass(frozen=True)
class Records:
    """The author's columns of some records."""

    batch: Any
    #: A dict for each record; for an unreadable one, the readable part.
    rows: list[Row]
    #: The origin of the values, by column; empty if a record is unreadable.
    origins: dict[str, Origin]
    #: Records that no function can be called with, by number.
    unreadable: dict[int, Unreadable] = field(default_factory=dict)

    def fresh(self, number: int) -> Row:
        """Read a record again: the author's function may have changed its argument."""
        [row] = self.batch.slice(number, 1).to_pylist()
        return dict(row)


def records(batch: Any, numbers: list[int] | None = None) -> Records:
    """Return the author's columns of the records `numbers`, or of all."""
    own = batch.select([name for name in batch.schema.names if not name.startswith(PREFIX)])
    if numbers is not None:
        own = own.take(pa.array(numbers, pa.int32()))
    names = own.schema.names
    try:
        origins = {name: _origin(column) for name, column in zip(names, own, strict=True)}
    except Exception:  # text that is not UTF-8, a date after 9999
        return _one_by_one(own)
    if not names:
        return Records(own, [{} for _ in range(own.num_rows)], {})
    columns = [origin.values for origin in origins.values()]
    return Records(own, _dicts(names, columns), origins)


def _origin(array: Any) -> Origin:
    kind = array.type
    names = [each.name for each in kind] if pa.types.is_struct(kind) else []
    if not names or len(set(names)) < len(names):
        return Origin(array, _values(array))
    fields = {name: _origin(each) for name, each in zip(names, array.flatten(), strict=True)}
    values: list[Any] = _dicts(names, [each.values for each in fields.values()])
    if array.null_count:
        present = array.is_valid().to_pylist()
        values = [value if here else None for value, here in zip(values, present, strict=True)]
    return Origin(array, values, fields)


def _values(array: Any) -> list[Any]:
    """Return the same as `to_pylist`. Arrow makes times one by one, which takes most of the
    time."""
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        try:
            # Times that Python cannot represent are numbers here.
            return _in_zone(values, kind.tz)
        except (AttributeError, OverflowError):
            pass
    return list(array.to_pylist())


def _in_zone(values: list[Any], name: str | None) -> list[Any]:
    if name is None:
        if set(map(type, values)) - {datetime.datetime, type(None)}:
            raise OverflowError
        return values
    zone, utc = pa.lib.string_to_tzinfo(name), datetime.UTC
    if name == "UTC":
        return [value and value.replace(tzinfo=zone) for value in values]
    return [value and value.replace(tzinfo=utc).astimezone(zone) for value in values]


def _dicts(names: list[str], columns: list[list[Any]]) -> list[Any]:
    """Return a dict for each row. A dict display takes a third of the time of other ways."""
    values = [f"v{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    source = f"lambda columns: [{{{pairs}}} for ({', '.join(values)},) in zip(*columns)]"
    rows: list[Any] = eval(source)(columns)
    return rows


def _one_by_one(own: Any) -> Records:
    rows: list[Row] = []
    unreadable: dict[int, Unreadable] = {}
    for number in range(own.num_rows):
        row: Row = {}
        for name, column in zip(own.schema.names, own.slice(number, 1), strict=True):
            try:
                [row[name]] = column.to_pylist()
            except Exception as exc:
                why = f"column {name} ({column.type}) cannot be read: {text(exc)}"
                unreadable.setdefault(number, Unreadable(why))
        rows.append(row)
    return Records(own, rows, {}, unreadable)
