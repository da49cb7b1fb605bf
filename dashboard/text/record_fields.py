"""A record as fields to edit: its columns, the values in them, and those in texts of a format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from arrester.dashboard.text import text_fields
from arrester.dashboard.text.record_text import is_cut
from arrester.dashboard.text.text_fields import InvalidField, Kind, TextField
from arrester.domain.visible_text import visible

#: A longer value has a field of several lines.
_LINE = 60


class Field(NamedTuple):
    """A field of a form."""

    #: Its name in the form.
    name: str
    column: str
    #: The name within the column, such as `wind`, and the format of the column's text.
    path: str
    format: str
    value: str
    kind: Kind
    #: Whether a person may choose another type.
    has_kinds: bool
    #: Why it cannot be edited here; empty: it can.
    locked: str = ""
    #: What is wrong with the typed value.
    invalid: str = ""

    @property
    def label(self) -> str:
        """The name within its column, or that of the column."""
        return self.path or self.column

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """The types that it may have, each with the pattern of its values in HTML."""
        return [(each.value, text_fields.PATTERNS.get(each, "")) for each in Kind]

    @property
    def pattern(self) -> str:
        """The pattern of its values in HTML; empty: any text."""
        return text_fields.PATTERNS.get(self.kind, "")

    @property
    def is_long(self) -> bool:
        """Whether it needs several lines."""
        return len(self.value) > _LINE or "\n" in self.value


class RecordFields(NamedTuple):
    """The fields of a record, and the digest of its text: the form is of this text."""

    fields: list[Field]
    digest: str


class InvalidFields(ValueError):
    """Typed values that their fields cannot have; it has the fields with the typed values."""

    def __init__(self, fields: list[Field]) -> None:
        super().__init__(
            "; ".join(f"{each.column}: {each.invalid}" for each in fields if each.invalid)
        )
        self.fields = fields


class _Place(NamedTuple):
    """A value of the record's JSON, and the field in its text, if that has a format."""

    outer: TextField
    inner: TextField | None
    format: str


def record_fields(text: str) -> RecordFields | None:
    """Return the fields of a record, which is a JSON object; None if they are too many."""
    places = _places(text)
    if places is None:
        return None
    return RecordFields([_field(number, each) for number, each in enumerate(places)], _digest(text))


def edited(text: str, form: Mapping[str, str]) -> str:
    """Return the record with the values of the form; what is not changed is as it was.

    Raises InvalidFields.
    """
    places = _places(text) or []
    fields = [_field(number, each) for number, each in enumerate(places)]
    typed = [_typed(each, form) for each in fields]
    checked = [_checked(*each) for each in zip(places, fields, typed, strict=True)]
    if any(each.invalid for each in checked):
        raise InvalidFields(checked)
    changed = [
        (place, after)
        for place, before, after in zip(places, fields, typed, strict=True)
        if (before.value, before.kind) != (after.value, after.kind)
    ]
    return text_fields.replaced(text, [*_written(changed)])


def fields_again(text: str, changed: str) -> RecordFields | None:
    """Return the fields of a record with the values that it was changed to, to edit them further.

    None: the changed record has other fields, or they are too many.
    """
    before, after = record_fields(text), record_fields(changed)
    if before is None or after is None:
        return None
    places = [(each.column, each.path, each.format) for each in before.fields]
    # A patch may have moved a column to the end.
    by_place = {(each.column, each.path, each.format): each for each in after.fields}
    if len(after.fields) != len(places) or set(places) != by_place.keys():
        return None
    fields = [
        by_place[place]._replace(name=each.name)
        for place, each in zip(places, before.fields, strict=True)
    ]
    return RecordFields(fields, before.digest)


def is_of(text: str, form: Mapping[str, str]) -> bool:
    """Whether a form was made of this text."""
    return form.get("digest") == _digest(text)


def _places(text: str) -> list[_Place] | None:
    if len(text) > text_fields.MAX_CHARACTERS:
        return None
    found: list[_Place] = []
    for outer in text_fields.json_fields(text):
        inner = text_fields.parse(outer.value) if outer.kind is Kind.TEXT else None
        if inner is None:
            found.append(_Place(outer, None, ""))
        else:
            found += (_Place(outer, each, inner.format) for each in inner.fields)
        if len(found) > text_fields.MAX_FIELDS:
            return None
    return found


def _field(number: int, place: _Place) -> Field:
    outer, inner, format = place
    own = outer if inner is None else inner
    path = (*outer.path[1:], *(() if inner is None else inner.path))
    locked = ""
    if is_cut(outer.value):
        locked = "truncated"
    elif visible(own.value) != own.value or "\r" in own.value:
        locked = "has invisible characters: edit it as JSON"
    return Field(
        name=f"f{number}",
        column=outer.path[0],
        path=".".join(path),
        format=format,
        value=own.value,
        kind=own.kind,
        has_kinds=not locked and format in ("", "JSON"),
        locked=locked,
    )


def _typed(field: Field, form: Mapping[str, str]) -> Field:
    """Return a field with the typed value and type."""
    if field.locked:
        return field
    kind = form.get(f"{field.name}.kind", "") if field.has_kinds else ""
    chosen = Kind(kind) if kind in list(Kind) else field.kind
    if chosen is Kind.NULL and field.kind is not Kind.NULL:
        return field._replace(value="", kind=chosen)
    # A browser sends line breaks of its own, and no field that is disabled.
    value = form.get(field.name, field.value).replace("\r\n", "\n")
    return field._replace(value=value, kind=chosen)


def _checked(place: _Place, before: Field, after: Field) -> Field:
    """Return a field with what is wrong with its value."""
    if (before.value, before.kind) == (after.value, after.kind):
        return after
    try:
        (place.inner or place.outer).write(after.value, after.kind)
    except InvalidField as error:
        shown = after.value or "an empty text"
        return after._replace(invalid=f"{shown} is not allowed; allowed: {error}")
    return after


def _written(changed: list[tuple[_Place, Field]]) -> Iterator[tuple[TextField, str]]:
    """Yield the changed values of the record's JSON; the changes of one text are one."""
    of_text: dict[TextField, list[tuple[TextField, str]]] = {}
    for (outer, inner, _), field in changed:
        if inner is None:
            yield outer, outer.write(field.value, field.kind)
        else:
            written = inner.write(field.value, field.kind)
            of_text.setdefault(outer, []).append((inner, written))
    for outer, changes in of_text.items():
        yield outer, text_fields.write_json(text_fields.replaced(outer.value, changes), Kind.TEXT)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
