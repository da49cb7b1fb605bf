"""Alerts, the rules and channels that send them, and the messages to send.

Only `alerts` writes them.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from arrester.controlplane.models.table import Table


class AlertChannel(Table):
    """An address that messages are sent to."""

    id = models.BigAutoField(primary_key=True)
    name = models.TextField(unique=True)
    #: `webhook`, `mail`, or the name that Apprise has for the service, such as `Pager Duty`.
    service = models.TextField()
    #: The address without its secrets.
    shown_address = models.TextField()
    #: The address, and the key that signs webhooks; encrypted.
    secret = models.BinaryField()
    created_at = models.DateTimeField()
    #: Until when only the worker that sends now may send; NULL: none does.
    leased_until = models.DateTimeField(null=True)
    #: Since the first of the failed attempts in a row; NULL: the last one succeeded.
    failing_since = models.DateTimeField(null=True)
    failed_attempts = models.IntegerField(default=0)
    retry_at = models.DateTimeField(null=True)
    error = models.TextField(default="")
    #: The account whose own channel it is; NULL: admins manage it.
    user = models.OneToOneField(
        User, on_delete=models.CASCADE, null=True, related_name="alert_channel"
    )

    class Meta:
        db_table = "alert_channel"


class EventSubscription(Table):
    """The events that a webhook receives, and how far it has them."""

    id = models.BigAutoField(primary_key=True)
    #: Its own channel, which no rule sends to.
    channel = models.OneToOneField(AlertChannel, models.CASCADE, related_name="subscription")
    #: Names of event types.
    event_types = ArrayField(models.TextField())
    #: The application of its events; empty: all.
    application = models.TextField(default="")
    #: The events up to this cursor of the feed are in the outbox, or have been accepted.
    cursor = models.TextField()
    created_at = models.DateTimeField()
    #: When the webhook last accepted events.
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "event_subscription"


class AlertRule(Table):
    """Which alerts are sent to which channel, and when."""

    id = models.BigAutoField(primary_key=True)
    name = models.TextField(unique=True)
    #: NULL: the channel with the name of the owner of what an alert is about.
    channel = models.ForeignKey(AlertChannel, models.CASCADE, null=True)
    #: The application of its alerts; empty: all.
    application = models.TextField(default="")
    #: Names of `AlertCause`; empty: all.
    causes = ArrayField(models.TextField(), default=list)
    only_critical = models.BooleanField(default=False)
    #: The least time between two messages about one application.
    throttle_seconds = models.IntegerField(default=300)
    #: Each day, in the time zone: only critical alerts are sent.
    quiet_from = models.TimeField(null=True)
    quiet_until = models.TimeField(null=True)
    time_zone = models.TextField(default="UTC")
    #: The time without an act of a person after which another channel gets the message, too.
    escalate_seconds = models.IntegerField(null=True)
    escalate_to = models.ForeignKey(
        AlertChannel, models.SET_NULL, null=True, related_name="escalations"
    )
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "alert_rule"


class Alert(Table):
    """A condition that needs a person, while it lasts and afterwards."""

    id = models.BigAutoField(primary_key=True)
    #: One of `AlertCause`.
    cause = models.TextField()
    critical = models.BooleanField()
    #: The application that it is about; empty: the server itself.
    application = models.TextField()
    #: What it is about within the application: pipeline and error group, instance, command.
    subject = models.TextField()
    title = models.TextField()
    detail = models.TextField(default="")
    #: The page about it, without the address of the server.
    path = models.TextField()
    #: Affected tasks, instances or records.
    count = models.BigIntegerField(default=1)
    pipeline = models.TextField(null=True)
    fingerprint = models.TextField(null=True)
    #: When the condition began, was found, was last found absent, and ended.
    since = models.DateTimeField()
    opened_at = models.DateTimeField()
    absent_since = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.TextField(default="")

    class Meta:
        db_table = "alert"
        constraints = [
            models.UniqueConstraint(
                fields=["cause", "application", "subject"],
                condition=models.Q(resolved_at=None),
                name="alert_open_once",
            )
        ]
        indexes = [models.Index("opened_at", "id", name="alert_newest")]


class AlertMessage(Table):
    """A message to a channel: the outbox."""

    id = models.UUIDField(primary_key=True)
    channel = models.ForeignKey(AlertChannel, models.SET_NULL, null=True)
    #: The name remains when the channel is deleted.
    channel_name = models.TextField()
    rule = models.ForeignKey(AlertRule, models.SET_NULL, null=True)
    #: One of `MessageKind`.
    kind = models.TextField()
    #: For ESCALATED the message on which no person acted, for RESOLVED the one whose alerts ended.
    about = models.UUIDField(null=True)
    alerts = ArrayField(models.BigIntegerField(), default=list)
    applications = ArrayField(models.TextField(), default=list)
    #: A `MessageText` as JSON.
    text = models.TextField()
    created_at = models.DateTimeField()
    #: One of `MessageStatus`.
    status = models.TextField()
    attempts = models.IntegerField(default=0)
    error = models.TextField(default="")
    sent_at = models.DateTimeField(null=True)
    #: All its alerts are resolved, or its rule is gone: nothing follows.
    settled = models.BooleanField(default=False)

    class Meta:
        db_table = "alert_message"
        indexes = [
            models.Index("created_at", "id", name="alert_message_newest"),
            models.Index(
                "channel",
                "created_at",
                name="alert_message_pending",
                condition=models.Q(status="PENDING"),
            ),
            models.Index(
                "rule",
                "created_at",
                name="alert_message_unsettled",
                condition=models.Q(settled=False),
            ),
            GinIndex("alerts", name="alert_message_of_alert", fastupdate=False),
        ]


class AlertLimits(Table):
    """The limits that make a condition an alert, of an application."""

    #: The limited application; empty: those without limits of their own.
    application = models.TextField(primary_key=True)
    failures_per_minute = models.IntegerField(null=True)
    tolerance_percent = models.IntegerField(null=True)
    held_minutes = models.IntegerField(null=True)
    replaced_per_hour = models.IntegerField(null=True)
    silent_hours = models.IntegerField(null=True)
    no_batch_minutes = models.IntegerField(null=True)
    batch_minutes = models.IntegerField(null=True)
    backlog_minutes = models.IntegerField(null=True)
    failed_percent = models.IntegerField(null=True)

    class Meta:
        db_table = "alert_limits"
