"""Fields of requests, with errors that state the allowed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers

#: The formats of a time.
A_TIME = "2026-11-20T09:00:00Z, 2026-11-20T10:00+01:00, or without a zone in UTC"


def choices(enum: Any) -> list[str]:
    """Return the values of an enumeration."""
    return [member.value for member in enum]


class ListedChoiceField(serializers.ChoiceField):
    """One of some values; the error for another value lists them."""

    def __init__(self, choices: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(choices, **kwargs)
        self.error_messages["invalid_choice"] = f"one of {', '.join(map(str, self.choices))}"


class MomentField(serializers.DateTimeField):
    """A time; the error for an invalid one shows the formats."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error_messages |= dict.fromkeys(
            self.default_error_messages, "a time in ISO 8601: " + A_TIME
        )


class TaskIdField(serializers.RegexField):
    """The id of a task, as the parameter of a list."""

    def __init__(self, **kwargs: Any) -> None:
        message = "the id of a task, 32 hexadecimal digits"
        super().__init__(r"^[0-9a-f]{32}$", error_messages={"invalid": message}, **kwargs)


def patch_field(of: str) -> serializers.ListField:
    """Return the field of a JSON Patch; `of` names the records that it changes."""
    return serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text=f"A JSON Patch (RFC 6902) {of}: add, move, remove, replace, test.",
    )
