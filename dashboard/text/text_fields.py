"""The fields in a text that is JSON, XML, CSV or `key=value`, each with its place.

A new value of a field replaces its place only: the rest of the text stays as it is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed lacks it
from typing import Final, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from arrester.domain.python_versions import StrEnum

#: A longer text is edited as a whole.
MAX_CHARACTERS: Final = 100_000
#: The most fields of a text.
MAX_FIELDS: Final = 200
_DELIMITERS: Final = (",", ";", "\t", "|")
_SEPARATORS: Final = ("&", ";", ",", "|", r"\s+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+\-]?\d+)?")
_LITERAL = re.compile(rf"true|false|null|{_NUMBER.pattern}")
_BLANK = re.compile(r"[ \t\r\n]*")
_NAME = r"[\w.:-]+"
_MARKUP = re.compile(
    r"(?P<skipped><!--.*?-->|<\?.*?\?>)|<!\[CDATA\[(?P<data>.*?)\]\]>"
    rf"|</(?P<closed>{_NAME})\s*>|<(?P<opened>{_NAME})(?P<attributes>(?:[^<>\"']|\"[^\"]*\"|'[^']*')*?)"
    r"(?P<empty>/?)>|(?P<text>[^<]+)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(rf"(?P<name>{_NAME})\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)')")
_ENTITY = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#(\d+)|#x([0-9a-fA-F]+));")
_ENTITIES: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


class Kind(StrEnum):
    """The type of a value of JSON; other texts have texts only."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "true or false"
    NULL = "NULL"


#: The patterns of values in HTML.
PATTERNS: Final = {
    Kind.NUMBER: rf"\s*{_NUMBER.pattern}\s*",
    Kind.BOOLEAN: "true|false",
}


class InvalidField(ValueError):
    """A new value that its field cannot have."""


class TextField(NamedTuple):
    """A field: the path of its name, its value, and the place of what is written for it."""

    path: tuple[str, ...]
    value: str
    kind: Kind
    start: int
    end: int
    #: Return what is written for a value of a type; raises InvalidField.
    write: Callable[[str, Kind], str]


class Parsed(NamedTuple):
    """The fields of a text, and the name of its format."""

    format: str
    fields: list[TextField]


class _NoFields(Exception):
    """The text is not of the format, or has no fields that can be edited one by one."""


def parse(text: str) -> Parsed | None:
    """Return the fields of a text; None if it has none, or too many, and is edited as a whole."""
    if not 1 < len(text) <= MAX_CHARACTERS:
        return None
    for format, read in _READERS:
        try:
            fields = list(read(text))
        except (_NoFields, RecursionError):
            continue
        return Parsed(format, fields) if 0 < len(fields) <= MAX_FIELDS else None
    return None


def replaced(text: str, changes: Sequence[tuple[TextField, str]]) -> str:
    """Return a text with other text in the places of some fields."""
    for field, written in sorted(changes, key=lambda each: each[0].start, reverse=True):
        text = f"{text[: field.start]}{written}{text[field.end :]}"
    return text


# JSON


def json_fields(text: str) -> Iterator[TextField]:
    """Yield the values of a JSON object or array that contain no others."""
    start = _blank(text, 0)
    if text[start : start + 1] not in ("{", "["):
        raise _NoFields
    try:
        json.loads(text)
    except ValueError as error:
        raise _NoFields from error
    return _values(text, start, ())[0]


def _values(text: str, at: int, path: tuple[str, ...]) -> tuple[Iterator[TextField], int]:
    """Return the values at a place of a valid JSON text, and the place after them."""
    found: list[TextField] = []
    if text[at] == '"':
        value, end = scanstring(text, at + 1)
        return iter([TextField(path, value, Kind.TEXT, at, end, write_json)]), end
    if text[at] not in "{[":
        literal = _LITERAL.match(text, at)
        assert literal is not None, "the text is valid JSON"
        value, end = literal[0], literal.end()
        kind = {"true": Kind.BOOLEAN, "false": Kind.BOOLEAN, "null": Kind.NULL}
        shown = "" if value == "null" else value
        of_kind = kind.get(value, Kind.NUMBER)
        return iter([TextField(path, shown, of_kind, at, end, write_json)]), end
    is_object, number = text[at] == "{", 0
    at = _blank(text, at + 1)
    while text[at] not in "}]":
        name = str(number)
        if is_object:
            name, at = scanstring(text, at + 1)
            at = _blank(text, _blank(text, at) + 1)
        inner, at = _values(text, at, (*path, name))
        found += inner
        at, number = _blank(text, at), number + 1
        if text[at] == ",":
            at = _blank(text, at + 1)
    return iter(found), at + 1


def write_json(value: str, kind: Kind) -> str:
    """Return a value of a type as JSON, a number as it was typed."""
    typed = value.strip()
    match kind:
        case Kind.TEXT:
            return json.dumps(value, ensure_ascii=False)
        case Kind.NULL if typed:
            raise InvalidField("no value as long as its type is NULL: choose another type")
        case Kind.NULL:
            return "null"
        case Kind.BOOLEAN if typed.lower() in ("true", "false"):
            return typed.lower()
        case Kind.BOOLEAN:
            raise InvalidField("true or false")
        case Kind.NUMBER if _NUMBER.fullmatch(typed):
            return typed
        case Kind.NUMBER:
            raise InvalidField("a number, such as 12 or -1.5")


def _blank(text: str, at: int) -> int:
    """Return the place after white space."""
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


# XML


def _xml_fields(text: str) -> Iterator[TextField]:
    if not text.lstrip().startswith("<") or "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise _NoFields
    try:
        # Names of other entities need a DOCTYPE.
        ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise _NoFields from error
    return iter(_elements(text))


def _elements(text: str) -> list[TextField]:
    """Return the attributes and texts of valid XML."""
    found: list[TextField] = []
    path: list[str] = []
    #: How often each name was opened within the elements of the path.
    names: list[Counter[str]] = [Counter()]
    at = 0
    while at < len(text):
        token = _MARKUP.match(text, at)
        if token is None:
            raise _NoFields
        at = token.end()
        if name := token["opened"]:
            names[-1][name] += 1
            number = names[-1][name]
            own = name if number == 1 else f"{name} {number}"
            begin = token.start("attributes")
            for each in _ATTRIBUTE.finditer(token["attributes"]):
                found.append(_attribute(each, begin, (*path, own)))
            if not token["empty"]:
                path.append(own)
                names.append(Counter())
        elif token["closed"]:
            path.pop()
            names.pop()
        elif token["text"] and token["text"].strip() and path:
            found.append(_element_text(token, tuple(path)))
        elif token["data"] is not None:
            span = token.span("data")
            found.append(TextField(tuple(path), token["data"], Kind.TEXT, *span, _write_data))
    return found


def _attribute(found: re.Match[str], begin: int, path: tuple[str, ...]) -> TextField:
    group = "double" if found["double"] is not None else "single"
    quote = '"' if group == "double" else "'"
    entity = "&quot;" if group == "double" else "&apos;"

    def write(value: str, _: Kind) -> str:
        # A parser reads white space of other kinds as spaces.
        return escape(value, {quote: entity, "\n": "&#10;", "\t": "&#9;"})

    start, end = (begin + each for each in found.span(group))
    value = _unescaped(found[group])
    return TextField((*path, f"@{found['name']}"), value, Kind.TEXT, start, end, write)


def _element_text(token: re.Match[str], path: tuple[str, ...]) -> TextField:
    """Return a text between tags, without the white space around it."""
    text = token["text"]
    start = token.start("text") + len(text) - len(text.lstrip())
    value = text.strip()
    end = start + len(value)
    return TextField(path, _unescaped(value), Kind.TEXT, start, end, lambda new, _: escape(new))


def _write_data(value: str, _: Kind) -> str:
    if "]]>" in value:
        raise InvalidField("a text without ]]>")
    return value


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        name, decimal, hexadecimal = found.groups()
        if name is not None:
            return _ENTITIES[name]
        return chr(int(decimal) if decimal is not None else int(hexadecimal, 16))

    return _ENTITY.sub(character, text)


# CSV


def _csv_fields(text: str) -> Iterator[TextField]:
    """Return the cells of one line."""
    line = text.removesuffix("\n").removesuffix("\r")
    # The beginning of a longer text, or JSON or XML that is not valid.
    if "\n" in line or "\r" in line or line.lstrip().startswith(("{", "[", "<")):
        raise _NoFields
    delimiter = max(_DELIMITERS, key=line.count)
    fields = _cells(line, delimiter)
    # A sentence has commas too, with a space after them.
    if len(fields) < 3 or any(each.value.startswith(" ") for each in fields[1:]):
        raise _NoFields
    return iter(fields)


def _cells(line: str, delimiter: str) -> list[TextField]:
    cell = re.compile(
        rf'"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^"{re.escape(delimiter)}][^{re.escape(delimiter)}]*|)'
    )

    def write(value: str, _: Kind) -> str:
        if not any(each in value for each in (delimiter, '"', "\n", "\r")):
            return value
        return f'"{value.replace(chr(34), chr(34) * 2)}"'

    def write_quoted(value: str, _: Kind) -> str:
        return f'"{value.replace(chr(34), chr(34) * 2)}"'

    found: list[TextField] = []
    at = 0
    while True:
        token = cell.match(line, at)
        assert token is not None, "a cell may be empty"
        quoted = token["quoted"]
        value = token["plain"] if quoted is None else quoted.replace('""', '"')
        writes = write if quoted is None else write_quoted
        path = (str(len(found) + 1),)
        found.append(TextField(path, value, Kind.TEXT, *token.span(), writes))
        at = token.end()
        if at == len(line):
            return found
        if line[at] != delimiter:
            raise _NoFields
        at += 1


# key=value


def _pair_fields(text: str) -> Iterator[TextField]:
    """Return the values of a text of pairs with one separator."""
    for separator in _SEPARATORS:
        own = r"\s" if separator == r"\s+" else re.escape(separator)
        key, value = r"[\w.-]+", rf'"[^"]*"|[^"{own}=]*'
        # A pattern with white space at both sides of the separator would be slow.
        between = separator if separator == r"\s+" else rf"{own}\s*"
        line, begin = text.strip(), len(text) - len(text.lstrip())
        if re.fullmatch(rf"{key}=(?:{value})(?:{between}{key}=(?:{value}))+", line):
            pairs = re.finditer(rf"(?P<key>{key})=(?P<value>{value})", line)
            return iter([_pair(each, begin, own) for each in pairs])
    raise _NoFields


def _pair(found: re.Match[str], begin: int, separator: str) -> TextField:
    is_quoted = found["value"].startswith('"')
    forbidden = re.compile('"' if is_quoted else rf'["={separator}\r\n]')

    def write(value: str, _: Kind) -> str:
        if forbidden.search(value):
            raise InvalidField(
                "a text without quotes" if is_quoted else "a text without separators"
            )
        return value

    start, end = (begin + each for each in found.span("value"))
    if is_quoted:
        start, end = start + 1, end - 1
    value = found["value"].strip('"')
    return TextField((found["key"],), value, Kind.TEXT, start, end, write)


_READERS: Final = (
    ("JSON", json_fields),
    ("XML", _xml_fields),
    ("key=value", _pair_fields),
    ("CSV", _csv_fields),
)
