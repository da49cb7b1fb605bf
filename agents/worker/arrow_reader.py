"""Read the author's rows from an Arrow batch as dicts, with the arrays that they came from."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .columns import PREFIX
from .errors import text

Row = dict[str, Any]
_EPOCH = datetime.datetime(1970, 1, 1)


class Unreadable(ValueError):
    """A column of a record cannot become a Python value.

    The message names the column, its type and the reason.
    """


@dataclass(frozen=True)
class Origin:
    """A received column: its array, its values, and the same for the fields of a struct."""

    array: Any
    values: list[Any]
    fields: dict[str, Origin] = field(default_factory=dict)


@dataclass(frozen=True)
class Records:
    """The author's columns of some records."""

    batch: Any
    #: A dict for each record, with the readable columns only.
    rows: list[Row]
    #: The received columns by name; empty if a record is unreadable.
    origins: dict[str, Origin]
    #: Records that no function can be called with, by number.
    unreadable: dict[int, Unreadable] = field(default_factory=dict)

    def fresh(self, number: int) -> Row:
        """Read a record again, since the author's function may have changed its argument."""
        [row] = self.batch.slice(number, 1).to_pylist()
        return dict(row)


def records(batch: Any, numbers: list[int] | None = None) -> Records:
    """Return the author's columns of the records `numbers`, or of all."""
    authors = batch.select([name for name in batch.schema.names if not name.startswith(PREFIX)])
    if numbers is not None:
        authors = authors.take(pa.array(numbers, pa.int32()))
    names = authors.schema.names
    try:
        origins = {name: _origin(column) for name, column in zip(names, authors, strict=True)}
    except Exception:  # text that is not UTF-8, a date after 9999
        return _records_one_by_one(authors)
    if not names:
        return Records(authors, [{} for _ in range(authors.num_rows)], {})
    columns = [origin.values for origin in origins.values()]
    return Records(authors, _dicts(names, columns), origins)


def _origin(array: Any) -> Origin:
    kind = array.type
    names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    if not names or len(set(names)) < len(names):
        return Origin(array, _values(array))
    fields = {name: _origin(field) for name, field in zip(names, array.flatten(), strict=True)}
    values: list[Any] = _dicts(names, [origin.values for origin in fields.values()])
    if array.null_count:
        present = array.is_valid().to_pylist()
        values = [
            value if is_present else None for value, is_present in zip(values, present, strict=True)
        ]
    return Origin(array, values, fields)


def _values(array: Any) -> list[Any]:
    """Return the same as `to_pylist`, which converts timestamps slowly, one by one."""
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        try:
            # Numbers are times that Python cannot represent; these raise.
            return _in_zone(values, kind.tz)
        except (AttributeError, OverflowError):
            pass
    return list(array.to_pylist())


def _in_zone(values: list[Any], name: str | None) -> list[Any]:
    if name is None:
        if set(map(type, values)) - {datetime.datetime, type(None)}:
            raise OverflowError
        return values
    zone, utc = pa.lib.string_to_tzinfo(name), datetime.timezone.utc
    if name == "UTC":
        return [value and value.replace(tzinfo=zone) for value in values]
    try:
        return [value and value.replace(tzinfo=utc).astimezone(zone) for value in values]
    except AttributeError:
        return [_local(value, zone) for value in values]


def _local(value: Any, zone: datetime.tzinfo) -> datetime.datetime | None:
    """Return a time in a zone; raises OverflowError if Python cannot represent it.

    A number is one, in microseconds, whose time in UTC is before the year 1 or after 9999: its time
    in the zone may not be.
    """
    if value is None:
        return None
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.timezone.utc).astimezone(zone)
    offset = zone.utcoffset(datetime.datetime.min if value < 0 else datetime.datetime.max)
    shift = offset or datetime.timedelta(0)
    return (_EPOCH + (datetime.timedelta(microseconds=value) + shift)).replace(tzinfo=zone)


def _dicts(names: list[str], columns: list[list[Any]]) -> list[Any]:
    """Return a dict for each row, made by a dict display: other code takes three times as long."""
    values = [f"v{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    source = f"lambda columns: [{{{pairs}}} for ({', '.join(values)},) in zip(*columns)]"
    # The names are quoted texts.
    rows: list[Any] = eval(source)(columns)  # nosec B307
    return rows


def _records_one_by_one(authors: Any) -> Records:
    rows: list[Row] = []
    unreadable: dict[int, Unreadable] = {}
    for number in range(authors.num_rows):
        row: Row = {}
        for name, column in zip(authors.schema.names, authors.slice(number, 1), strict=True):
            try:
                [row[name]] = _values(column)
            except Exception as exc:
                message = f"column {name} ({column.type}) cannot be read: {text(exc)}"
                unreadable.setdefault(number, Unreadable(message))
        rows.append(row)
    return Records(authors, rows, {}, unreadable)
