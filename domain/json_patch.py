"""Change a record, which is a JSON object of columns, by a JSON Patch (RFC 6902).

A column that no operation names keeps its text: a number that Python cannot hold stays as it is.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

import jsonpatch
import jsonpointer
import msgspec

from arrester.domain.errors import InvalidValue

#: The longest patch, in characters, and the most operations of one.
MAX_CHARACTERS, MAX_OPERATIONS = 16_384, 100
#: The operations, and what each needs beside its path. Not `copy`: a few of them make a record of
#: any size.
OPERATIONS: Final = {
    "add": "value",
    "move": "from",
    "remove": "path",
    "replace": "value",
    "test": "value",
}
_ALLOWED: Final = (
    f"a JSON Patch (RFC 6902): a list of 1 to {MAX_OPERATIONS} operations"
    f" {', '.join(OPERATIONS)}, at most {MAX_CHARACTERS:,} characters"
)
_encoder = msgspec.json.Encoder(decimal_format="number")
_columns = msgspec.json.Decoder(dict[str, msgspec.Raw])


class PatchFailed(Exception):
    """An operation does not apply to the record, such as a `test` of another value."""


class JsonPatch:
    """A JSON Patch of records; `text` is its document.

    Raises InvalidValue for a text that is none.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise InvalidValue("patch", text[:50], _ALLOWED)
        self.text = text
        operations = self._parse(text)
        if not isinstance(operations, list) or not 1 <= len(operations) <= MAX_OPERATIONS:
            raise InvalidValue("patch", text[:50], _ALLOWED)
        #: The columns that it names, and the places that it changes.
        self.columns: set[str] = set()
        self.paths: list[str] = []
        for operation in operations:
            self._check(operation)
        try:
            self._patch = jsonpatch.JsonPatch(operations)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as exc:
            raise InvalidValue(
                "patch", text[:50], _ALLOWED, reason=f"no JSON Patch (RFC 6902): {exc}"
            ) from exc

    def apply(self, record: str) -> str:
        """Return the changed record; raise PatchFailed if an operation does not apply."""
        columns = _columns.decode(record)
        named = {name: loads(columns[name]) for name in self.columns & columns.keys()}
        try:
            changed = self._patch.apply(named)
        except (
            jsonpatch.JsonPatchException,
            jsonpointer.JsonPointerException,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
        ) as exc:
            raise PatchFailed(f"the patch does not apply: {exc}") from exc
        kept = {name: value for name, value in columns.items() if name not in named}
        in_order = {name: changed[name] for name in columns if name in changed}
        return _encoder.encode({**kept, **in_order, **changed}).decode()

    @staticmethod
    def _parse(text: str) -> object:
        try:
            return loads(text)
        except (ValueError, RecursionError) as exc:
            raise InvalidValue(
                "patch", text[:50], _ALLOWED, reason=f"no JSON Patch (RFC 6902): {exc}"
            ) from exc

    def _check(self, operation: object) -> None:
        name = operation.get("op") if isinstance(operation, dict) else None
        if not isinstance(operation, dict) or not isinstance(name, str) or name not in OPERATIONS:
            raise InvalidValue("patch", operation, f"an operation {', '.join(OPERATIONS)}")
        needed = OPERATIONS[name]
        if needed not in operation:
            raise InvalidValue("patch", operation, f"an operation with {needed!r}")
        for path in [
            operation.get("path"),
            *([operation.get("from")] if "from" in operation else []),
        ]:
            if not isinstance(path, str) or len(path) < 2 or path[0] != "/":
                raise InvalidValue("patch", operation, "paths such as /column or /column/field")
            self.columns.add(path.split("/")[1].replace("~1", "/").replace("~0", "~"))
            if name != "test":
                self.paths.append(path)


def difference(record: str, edited: str) -> JsonPatch | None:
    """Return the patch that makes `edited` of a record: it replaces each changed value.

    None: nothing differs. Raises InvalidValue if `edited` is no object with the same columns.
    """
    before = _columns.decode(record)
    try:
        after = loads(edited)
    except (ValueError, RecursionError) as exc:
        raise InvalidValue(
            "record", edited[:50], "a JSON object", reason=f"no JSON: {exc}"
        ) from exc
    if not isinstance(after, dict) or after.keys() != before.keys():
        names = ", ".join(before)
        raise InvalidValue("record", edited[:50], f"a JSON object with the columns {names}")
    changed = [
        (f"/{_escaped(name)}", loads(value), after[name])
        for name, value in before.items()
        if _differ(loads(value), after[name])
    ]
    inner = [each for change in changed for each in _inner_changes(*change)]
    # Changes of many values are those of their columns.
    places = inner if len(inner) <= MAX_OPERATIONS else [(path, new) for path, _, new in changed]
    operations = [{"op": "replace", "path": path, "value": new} for path, new in places]
    return JsonPatch(_encoder.encode(operations).decode()) if operations else None


def _inner_changes(path: str, before: object, after: object) -> list[tuple[str, object]]:
    """Return the places of the values that differ, each with the new value: the others keep what a
    page does not show of them."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        pairs = [(_escaped(name), before[name], after[name]) for name in before]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(str(index), *each) for index, each in enumerate(zip(before, after, strict=True))]
    else:
        return [(path, after)]
    return [
        each
        for name, old, new in pairs
        if _differ(old, new)
        for each in _inner_changes(f"{path}/{name}", old, new)
    ]


def loads(text: str | bytes | msgspec.Raw) -> Any:
    """Return a JSON value with each digit of its numbers; raise ValueError."""
    content = text if isinstance(text, str) else bytes(text)
    return json.loads(content, parse_float=Decimal, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _differ(one: object, other: object) -> bool:
    # 1 and true are equal in Python.
    return _encoder.encode(one) != _encoder.encode(other)
