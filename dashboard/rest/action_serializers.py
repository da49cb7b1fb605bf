"""The fields of actions of people, dead letters and the audit in REST."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rest_framework import serializers

from arrester.controlplane import queries
from arrester.controlplane.actions import MOST_GROUPS
from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.domain.state.error_groups import PERIODS, GroupAct
from arrester.controlplane.domain.state.states import CommandStatus, InstanceStatus
from arrester.dashboard.rest.parameters import PageQuery
from arrester.dashboard.rest.serializers import Choice, Command, ErrorGroup, Moment, choices
from arrester.dashboard.text import audit_text

_ID = "Repeating it has no further effect. Or an Idempotency-Key."


class Act(serializers.Serializer[Any]):
    """An act of a person; for an account, `application` and `position` are null."""

    at = serializers.DateTimeField()
    actor = serializers.CharField(allow_null=True)
    kind = serializers.SerializerMethodField()
    application = serializers.SerializerMethodField()
    about = serializers.SerializerMethodField()
    what = serializers.SerializerMethodField()
    position = serializers.SerializerMethodField()
    status = serializers.ChoiceField(
        choices(CommandStatus),
        source="status.value",
        allow_null=True,
        help_text="In the audit, for an issued command: its current status.",
    )
    instance = serializers.SerializerMethodField(
        help_text="The driver on which it was done by hand, as that says; null: done here."
    )

    def get_kind(self, act: queries.Act) -> str:
        """Return the event's name, or the act on an account."""
        return act.change.act if act.change is not None else _event(act).event.type

    def get_application(self, act: queries.Act) -> str | None:
        """Return the application of the log."""
        return None if act.change is not None else _event(act).application

    def get_about(self, act: queries.Act) -> str:
        """Return the subject of the act."""
        return act.change.account if act.change is not None else audit_text.about(_event(act))

    def get_what(self, act: queries.Act) -> str:
        """Return the description of the act."""
        if act.change is not None:
            return act.change.detail
        return audit_text.words_of(_event(act).event.data)

    def get_instance(self, act: queries.Act) -> UUID | None:
        """Return the instance of the event."""
        return None if act.change is not None else _event(act).event.instance

    def get_position(self, act: queries.Act) -> int | None:
        """Return the position in the log."""
        return None if act.change is not None else _event(act).sequence


def _event(act: queries.Act) -> StoredEvent:
    assert act.event is not None
    return act.event


def as_acts(page: queries.Page[StoredEvent]) -> queries.Page[queries.Act]:
    """Return a page of events as one of acts."""
    rows = tuple(
        queries.Act(
            at=each.event.occurred_at, actor=getattr(each.event.data, "actor", ""), event=each
        )
        for each in page.rows
    )
    return queries.Page(rows=rows, next=page.next)


class AuditQuery(PageQuery):
    """Filters of the audit; times are of occurrence, `until` is exclusive."""

    actor = serializers.CharField(required=False)
    kind = Choice(list(queries.ACT_KINDS), required=False)
    application = serializers.CharField(required=False)
    since = Moment(required=False)
    until = Moment(required=False)


class DeadLetterQuery(PageQuery):
    """Filters of the list of dead letters; times are of occurrence, `until` is exclusive."""

    application = serializers.CharField(required=False)
    pipeline = serializers.CharField(required=False)
    task = serializers.RegexField(r"^[0-9a-f]{32}$", required=False, help_text="Its id.")
    since = Moment(required=False)
    until = Moment(required=False)


class DeadLetters(serializers.Serializer[Any]):
    """Skipped records that were written as dead letters."""

    application = serializers.CharField()
    sequence = serializers.IntegerField()
    occurred_at = serializers.DateTimeField(source="event.occurred_at")
    pipeline = serializers.CharField(source="event.run.pipeline")
    checkpoint = serializers.CharField(source="event.run.checkpoint")
    key = serializers.CharField(source="event.data.task", allow_null=True)
    count = serializers.IntegerField(source="event.data.count")
    first_position = serializers.IntegerField(source="event.data.first_position", allow_null=True)
    last_position = serializers.IntegerField(source="event.data.last_position", allow_null=True)
    place = serializers.CharField(source="event.data.place")
    format = serializers.CharField(source="event.data.format")
    actor = serializers.CharField(
        source="event.data.actor", allow_null=True, help_text="Who skipped it; null: a handler."
    )
    reason = serializers.CharField(source="event.data.reason", allow_null=True)
    ids = serializers.ListField(
        source="event.data.ids",
        child=serializers.CharField(),
        help_text="What the first of them are known by at the place.",
    )


class NewGroupAct(serializers.Serializer[Any]):
    """An act on an error group; MUTE needs `until`, or `failures` per period, or both."""

    id = serializers.UUIDField(required=False, help_text=_ID)
    act = Choice(choices(GroupAct))
    reason = serializers.CharField(required=False, allow_null=True, max_length=1000)
    until = Moment(required=False)
    failures = serializers.IntegerField(required=False, min_value=1)
    period_seconds = Choice(
        list(PERIODS.items()), required=False, help_text="Aligned to the epoch."
    )


class GroupKey(serializers.Serializer[Any]):
    """The key of an error group."""

    application = serializers.CharField()
    fingerprint = serializers.CharField()

    def to_internal_value(self, data: Any) -> Any:
        """Return the values; an unknown name is refused."""
        strange = [name for name in data if name not in self.fields] if data else []
        if strange and isinstance(data, dict):
            raise serializers.ValidationError({strange[0]: [f"one of {', '.join(self.fields)}"]})
        return super().to_internal_value(data)


class NewGroupsAct(NewGroupAct):
    """An act on several error groups."""

    groups = serializers.ListField(child=GroupKey(), min_length=1, max_length=MOST_GROUPS)


class ActedOn(serializers.Serializer[Any]):
    """The result for one error group of many."""

    application = serializers.CharField()
    fingerprint = serializers.CharField()
    group = ErrorGroup(allow_null=True)
    refused = serializers.CharField(help_text="Why it was refused; empty where it was not.")


class NewNote(serializers.Serializer[Any]):
    """A note on an error group (`application` and `fingerprint`), a `task`, or a `command`."""

    id = serializers.UUIDField(required=False, help_text=_ID)
    text = serializers.CharField(max_length=2000)
    application = serializers.CharField(required=False)
    fingerprint = serializers.CharField(required=False)
    task = serializers.CharField(required=False, help_text="The id of the task.")
    command = serializers.UUIDField(required=False)


class Note(serializers.Serializer[Any]):
    """A note that was added."""

    id = serializers.UUIDField()
    actor = serializers.CharField()
    text = serializers.CharField()


class NewCancel(serializers.Serializer[Any]):
    """The reason for cancelling a command."""

    id = serializers.UUIDField(required=False, help_text=_ID)
    reason = serializers.CharField(required=False, allow_null=True, max_length=1000)


class NewResume(serializers.Serializer[Any]):
    """The tasks to resume: `tasks`, or the PAUSED ones of an `application`, or of one cause."""

    id = serializers.UUIDField(required=False, help_text=_ID)
    tasks = serializers.ListField(
        child=serializers.CharField(), required=False, max_length=500, help_text="Ids of tasks."
    )
    application = serializers.CharField(required=False)
    fingerprint = serializers.CharField(required=False)
    reason = serializers.CharField(required=False, allow_null=True, max_length=1000)
    dry_run = serializers.BooleanField(required=False, default=False)


class Resumed(serializers.Serializer[Any]):
    """The result for one task of many."""

    task = serializers.CharField(source="task.digest")
    command = Command(allow_null=True)
    refused = serializers.CharField(help_text="Why the state forbids it; empty where it does not.")


class ResumedMany(serializers.Serializer[Any]):
    """The results for some tasks, and the number of further PAUSED ones that match."""

    results = Resumed(many=True)
    left = serializers.IntegerField()


class RunningQuery(PageQuery):
    """Filters of the list of instances."""

    application = serializers.CharField(required=False)
    ended = serializers.BooleanField(required=False, default=False)


class Running(serializers.Serializer[Any]):
    """An instance with its heartbeat; null without one."""

    id = serializers.UUIDField(source="state.id")
    application = serializers.CharField(source="state.application")
    host = serializers.CharField(source="state.host")
    pid = serializers.IntegerField(source="state.pid")
    status = serializers.ChoiceField(choices(InstanceStatus), source="state.status.value")
    lost = serializers.BooleanField(source="state.lost")
    started_at = serializers.DateTimeField(source="state.started_at", allow_null=True)
    versions = serializers.DictField(source="state.versions")
    heard_at = serializers.DateTimeField(allow_null=True)
    skew_seconds = serializers.FloatField(
        allow_null=True, help_text="How far its clock is ahead of the server's."
    )
    spooled = serializers.IntegerField(allow_null=True, help_text="Events not yet confirmed.")
    spool_bytes = serializers.IntegerField(allow_null=True)
    spool_since = serializers.DateTimeField(allow_null=True)
    counted_only = serializers.IntegerField(
        allow_null=True, help_text="Failed records counted only, without details."
    )
