"""The fields of instances, runs, policies and events in REST."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

import msgspec
from rest_framework import serializers

from arrester.controlplane.domain.error_policy.policy import Scope
from arrester.controlplane.domain.error_policy.tolerance import Window
from arrester.controlplane.domain.events import StageAnswer, StoredEvent
from arrester.controlplane.domain.state.states import InstanceStatus, MostSpent, ThreadStatus
from arrester.controlplane.domain.state.tolerance_usage import moment
from arrester.dashboard.rest.parameters import A_LIMIT, MOST, AsOfQuery
from arrester.dashboard.rest.serializers import FailureField, choices


class Instance(serializers.Serializer[Any]):
    """A driver process."""

    id = serializers.UUIDField()
    application = serializers.CharField()
    status = serializers.ChoiceField(choices(InstanceStatus), source="status.value")
    lost = serializers.BooleanField(help_text="No heartbeat: the status is the last known one.")
    since = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    host = serializers.CharField()
    pid = serializers.IntegerField()
    versions = serializers.DictField(child=serializers.CharField())
    reason = serializers.CharField(allow_null=True)
    failure = FailureField(allow_null=True)
    sequence = serializers.IntegerField()


class StagePolicy(serializers.Serializer[Any]):
    """The error policy of one stage."""

    name = serializers.CharField(help_text="`process:<name>` and the like.")
    step = serializers.CharField(allow_null=True, help_text="The author's name of it.")
    kind = serializers.CharField()
    answer = serializers.CharField(
        allow_null=True, help_text="The same for every failure; null: the handler is asked."
    )
    handler = serializers.CharField(allow_null=True, help_text="Its class.")
    origin = serializers.ChoiceField(["on_error", "configuration", "limit", "default"])
    on = serializers.DictField(
        child=serializers.CharField(), help_text="Answers by the name of a class or condition."
    )


class StageCommanded(serializers.Serializer[Any]):
    """A stage whose policy a person has overridden."""

    name = serializers.CharField()
    answer = serializers.ChoiceField(get_args(StageAnswer))
    actor = serializers.CharField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    since = serializers.DateTimeField()


class Policy(serializers.Serializer[Any]):
    """The error policy of a run, as reported at its start."""

    stages = StagePolicy(many=True)
    commanded = StageCommanded(many=True, help_text="Operator override; it takes precedence.")
    sink = serializers.CharField()
    atomic = serializers.BooleanField()
    tolerance_limit = serializers.IntegerField(
        allow_null=True, help_text="For each task in one run; null: not set, negative: none."
    )
    rate_limit = serializers.IntegerField(
        allow_null=True, help_text="For each task in one window; null: not set, negative: none."
    )
    rate_duration = serializers.ChoiceField(choices(Window))
    retries_limit = serializers.IntegerField(help_text="Negative: unlimited.")
    retry_timeout_ms = serializers.IntegerField(help_text="Negative: unlimited.")
    retry_delay_max_ms = serializers.IntegerField()
    scope = serializers.ChoiceField(choices(Scope))
    outage_share = serializers.FloatField(
        allow_null=True, help_text="Null: each record is judged by itself."
    )
    outage_minimum = serializers.IntegerField()
    outage_response = serializers.CharField(allow_null=True)
    dead_letter_format = serializers.CharField(
        allow_null=True, help_text="Null: skipped records are not stored."
    )
    dead_letter_place = serializers.CharField(allow_null=True)
    uncaught = serializers.CharField(help_text="What follows when the run dies.")


class Spent(serializers.Serializer[Any]):
    """The largest number of records that one task of the run has left out; 0 without a limit."""

    total = serializers.IntegerField(help_text="Since the run began.")
    task = serializers.CharField(allow_null=True, allow_blank=True, help_text="The task's key.")
    window_start = serializers.SerializerMethodField(
        help_text="The newest window in which any was left out."
    )
    in_window = serializers.IntegerField(help_text="In that window.")
    window_task = serializers.CharField(allow_null=True, allow_blank=True)

    def get_window_start(self, spent: MostSpent) -> datetime | None:
        """Return the start of the window; None if nothing was left out."""
        return moment(spent.window_start_ms) if spent.in_window else None


class Thread(serializers.Serializer[Any]):
    """A pipeline on a checkpoint: its newest run."""

    application = serializers.CharField()
    pipeline = serializers.CharField()
    checkpoint = serializers.CharField()
    epoch = serializers.IntegerField()
    status = serializers.ChoiceField(choices(ThreadStatus), source="status.value")
    instance = serializers.UUIDField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    failure = FailureField(allow_null=True)
    policy = Policy(allow_null=True, help_text="Null: the agent does not report it.")
    described_at = serializers.DateTimeField(allow_null=True)
    spent = Spent()
    sequence = serializers.IntegerField()


class InstanceQuery(AsOfQuery):
    """Filters of the instances of an application."""

    ended = serializers.BooleanField(required=False, default=False)


class StoredEventRow(serializers.Serializer[Any]):
    """An event of the log, without its body."""

    application = serializers.CharField()
    sequence = serializers.IntegerField(help_text="Counted on by one in each application.")
    received_at = serializers.DateTimeField()
    type = serializers.CharField(source="event.type", help_text="See docs/reference/events.md.")
    occurred_at = serializers.DateTimeField(source="event.occurred_at")
    instance = serializers.UUIDField(source="event.instance", allow_null=True)
    run = serializers.SerializerMethodField(help_text="Pipeline, checkpoint and epoch.")
    caused_by = serializers.UUIDField(
        source="event.caused_by", allow_null=True, help_text="The command that led to it."
    )
    data = serializers.SerializerMethodField(  # type: ignore[assignment]  # a name of DRF's, too
        help_text="What it says; fields as in docs/reference/events.md."
    )

    def get_run(self, stored: StoredEvent) -> dict[str, Any] | None:
        """Return the run of the event."""
        found: dict[str, Any] | None = msgspec.to_builtins(stored.event.run)
        return found

    def get_data(self, stored: StoredEvent) -> dict[str, Any]:
        """Return the fields of the event, without those at their defaults."""
        said = msgspec.to_builtins(stored.event.data)
        return {name: value for name, value in said.items() if name != "type"}


class FeedPage(serializers.Serializer[Any]):
    """Some events, and the cursor to continue with: nothing ever appears before it."""

    events = StoredEventRow(many=True)
    cursor = serializers.CharField()
    more = serializers.BooleanField(help_text="There is more already; else ask again later.")


class FeedQuery(serializers.Serializer[Any]):
    """Which events to follow, and from where."""

    application = serializers.CharField(required=False, help_text="One log; all without it.")
    cursor = serializers.CharField(required=False, help_text="Of the answer before.")
    limit = serializers.IntegerField(
        required=False,
        default=100,
        min_value=1,
        max_value=MOST,
        error_messages=A_LIMIT,
        help_text="About so many, shared among the logs.",
    )
