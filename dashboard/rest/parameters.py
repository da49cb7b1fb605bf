"""The URL parameters of lists and states."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from arrester.controlplane.domain.state.states import GroupStatus, TaskStatus
from arrester.controlplane.queries import NEWEST, SORTS
from arrester.dashboard.rest.serializers import Choice, Moment, choices

LIMIT, MOST = 50, 500
A_LIMIT: dict[str, Any] = dict.fromkeys(
    ("invalid", "min_value", "max_value"), f"a whole number from 1 to {MOST}"
)


class AsOfQuery(serializers.Serializer[Any]):
    """A point in time: by default now."""

    as_of = serializers.CharField(
        required=False,
        help_text="A time (of the server), or a position of one application: @18233.",
    )


class PageQuery(serializers.Serializer[Any]):
    """The page of a list."""

    cursor = serializers.CharField(required=False, help_text="`next` of the page before.")
    limit = serializers.IntegerField(
        required=False,
        default=LIMIT,
        min_value=1,
        max_value=MOST,
        error_messages=A_LIMIT,
    )


class ApplicationQuery(PageQuery):
    """The filter of a list by application."""

    application = serializers.CharField(required=False)


def _task_id() -> serializers.RegexField:
    return serializers.RegexField(
        r"^[0-9a-f]{32}$",
        required=False,
        help_text="The id of a task.",
        error_messages={"invalid": "the id of a task, 32 hexadecimal digits"},
    )


class CommandQuery(ApplicationQuery):
    """Filters of the list of commands."""

    task = _task_id()


class GroupQuery(ApplicationQuery, AsOfQuery):
    """Filters of the list of error groups."""

    state = Choice(choices(GroupStatus), required=False)
    stage = serializers.CharField(required=False)
    exception_class = serializers.CharField(
        required=False, help_text="With or without its package."
    )
    text = serializers.CharField(
        required=False,
        help_text="In the class, or in the message of the group's newest example: other records of"
        " the group may have failed with other values.",
    )
    since = Moment(required=False, help_text="Seen at that time or later,")
    until = Moment(required=False, help_text="and before this.")
    sort = Choice(
        [f"{way}{column}" for column in SORTS for way in ("-", "")], required=False, default=NEWEST
    )


class TaskQuery(ApplicationQuery, AsOfQuery):
    """Filters of the list of tasks."""

    pipeline = serializers.CharField(required=False)
    state = Choice(choices(TaskStatus), required=False)


class FailureQuery(ApplicationQuery):
    """Filters of the list of failures; times are of occurrence, `until` is exclusive.

    Failures are sorted by time of occurrence, those of a task by time of receipt.
    """

    pipeline = serializers.CharField(required=False)
    task = _task_id()
    stage = serializers.CharField(required=False)
    exception_class = serializers.CharField(
        required=False,
        help_text="The whole name, with its package; without it, 400 names the whole.",
    )
    fingerprint = serializers.CharField(required=False)
    since = Moment(required=False)
    until = Moment(required=False)
