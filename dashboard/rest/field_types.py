"""Fields of requests, with errors that state the allowed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.settings import api_settings

from arrester.domain.errors import InvalidValue

#: The formats of a time.
A_TIME = "2026-11-20T09:00:00Z, 2026-11-20T10:00+01:00, or without a zone in UTC"
#: What is allowed in place of the errors of Django REST framework.
_ALLOWED = {
    "Must be a valid boolean.": "true or false",
    "Must be a valid UUID.": "a UUID",
    "A valid integer is required.": "a whole number",
    "A valid number is required.": "a number",
    "This field may not be blank.": "a text that is not blank",
    "Not a valid string.": "a text",
    "Null characters are not allowed.": "a text without NUL",
}
#: A name, or the number in brackets, in a name such as `groups[0].application`.
_PART_OF_NAME = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
#: The most levels of arrays and objects in a body. Python reads more, and fails at other work.
LEVELS = 100


class JsonParser(JSONParser):
    """JSON with a limited depth."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the value in a body; raise ParseError."""
        too_deep = ParseError(f"at most {LEVELS} levels of arrays and objects")
        try:
            value = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise too_deep from None
        level: list[Any] = [value]
        for _ in range(LEVELS):
            level = [each for outer in level for each in _items(outer)]
        if any(isinstance(each, dict | list) for each in level):
            raise too_deep
        return value


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else []


def choices(enum: Any) -> list[str]:
    """Return the values of an enumeration."""
    return [member.value for member in enum]


class ListedChoiceField(serializers.ChoiceField):
    """One of some values; the error for another value lists them."""

    def fail(self, key: str, **kwargs: Any) -> NoReturn:
        """Raise ValidationError."""
        if key == "invalid_choice":
            raise serializers.ValidationError(f"one of {', '.join(map(str, self.choices))}", key)
        super().fail(key, **kwargs)


class SortField(ListedChoiceField):
    """The order of a list: `orders` has each order by its public name."""

    def __init__(self, orders: Mapping[str, str], *, default: str, **options: Any) -> None:
        self._orders = orders
        super().__init__([*orders], required=False, default=default, **options)

    def to_internal_value(self, data: Any) -> Any:
        """Return the order."""
        return self._orders[str(super().to_internal_value(data))]

    def get_default(self) -> Any:
        """Return the order if the request has none."""
        return self._orders[str(super().get_default())]


class MomentField(serializers.DateTimeField):
    """A time; the error for an invalid one shows the formats."""

    default_error_messages = dict.fromkeys(
        serializers.DateTimeField.default_error_messages, f"a time in ISO 8601: {A_TIME}"
    )


#: The id of a task, as the parameter of a list.
task_id_field = partial(
    serializers.RegexField,
    r"^[0-9a-f]{32}$",
    error_messages={"invalid": "the id of a task, 32 hexadecimal digits"},
)


def patch_field(of: str) -> serializers.ListField:
    """Return the field of a JSON Patch; `of` names the records that it changes."""
    return serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text=f"A JSON Patch (RFC 6902) {of}: add, move, remove, replace, test.",
    )


def check_types(form: serializers.Serializer[Any], given: Mapping[str, Any]) -> None:
    """Raise InvalidValue for a value of JSON with another type than its field.

    Django REST framework converts numbers to texts, and false to a UUID.
    """
    for name, value in given.items():
        field: Any = form.fields[name]
        if isinstance(field, serializers.ListField) and isinstance(value, list):
            for number, each in enumerate(value):
                _check_type(field.child, each, f"{name}[{number}]")
        else:
            _check_type(field, value, name)


def _check_type(field: Any, value: Any, name: str) -> None:
    match field:
        case serializers.BooleanField():
            fits, allowed = isinstance(value, bool), "true or false"
        case serializers.IntegerField():
            fits = isinstance(value, int | float) and not isinstance(value, bool)
            allowed = str(field.error_messages["invalid"])
        case serializers.ChoiceField():
            fits = type(value) in {type(each) for each in field.choices}
            allowed = f"one of {', '.join(map(str, field.choices))}"
        case serializers.CharField() | serializers.UUIDField() | serializers.DateTimeField():
            fits, allowed = isinstance(value, str), str(field.error_messages["invalid"])
        case _:
            return
    # Null has errors of its own.
    if not fits and value is not None:
        raise InvalidValue(name, value, _ALLOWED.get(allowed, allowed))


def first_invalid(errors: Any, name: str = "") -> tuple[str, str]:
    """Return the name of the first invalid value, `groups[0].application`, and the reason."""
    if isinstance(errors, Mapping):
        inner, problems = next(iter(errors.items()))
        if isinstance(inner, int):
            return first_invalid(problems, f"{name}[{inner}]")
        if inner == api_settings.NON_FIELD_ERRORS_KEY:
            return first_invalid(problems, name)
        return first_invalid(problems, f"{name}.{inner}" if name else inner)
    return name, "; ".join(_ALLOWED.get(problem, problem) for problem in map(str, errors))


def value_at(given: Mapping[str, Any], name: str) -> Any:
    """Return the value with a name of `first_invalid`; None if it is missing."""
    value: Any = given
    for key, number in _PART_OF_NAME.findall(name):
        try:
            value = value[int(number)] if number else value.get(key)
        except (AttributeError, LookupError, TypeError):
            return None
    return value
