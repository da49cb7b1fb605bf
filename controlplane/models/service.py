"""Tables of the service: sightings, audit, credentials of agents, gaps, limits, refusals."""

from __future__ import annotations

from django.db import models

from arrester.controlplane.models.table import Table


class Sighting(Table):
    """When a part of the system (redis, wake, worker) was last active."""

    name = models.TextField(primary_key=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "sighting"


class AuditEntry(Table):
    """An act of a person, or a sent alert: a link of the audit's chain.

    Only `audit_chain` adds them. An act that is an event of a log names the event.
    """

    #: The number of the entry, without gaps; see `audit_chain`.
    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    actor = models.TextField()
    #: The account or application; for alerts the channel, rule or application.
    about = models.TextField(db_column="account")
    #: One of `actions.AccountAct`, `actions.AgentAct`, `alerts.audit.AlertAct` or
    #: `login_attempts.LoginAct`; or the type of the event.
    act = models.TextField()
    #: For an event: its content as JSON.
    detail = models.TextField()
    #: The event that the act is.
    application = models.TextField(null=True)
    sequence = models.BigIntegerField(null=True)
    #: The name of the key of the MAC, the MAC of the entry before, and the MAC. Entries of earlier
    #: versions have none.
    key = models.TextField(null=True)
    previous = models.BinaryField(null=True)
    mac = models.BinaryField(null=True)

    class Meta:
        db_table = "account_change"
        indexes = [models.Index("at", "id", name="account_change_newest")]


class AuditCheck(Table):
    """The result of the last periodic check of the audit's chain: one row."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    #: The newest verified entry, and its MAC.
    number = models.BigIntegerField()
    mac = models.BinaryField()
    at = models.DateTimeField()
    #: When the check last began at the first entry.
    began_at = models.DateTimeField()
    #: Why the chain is not whole; empty: it is.
    problem = models.TextField()
    #: The newest entry with the MAC of an unknown key; 0: there is none.
    unverified = models.BigIntegerField(default=0)

    class Meta:
        db_table = "audit_check"


class RedriveSelection(Table):
    """The dead letters of a redrive. The row is deleted an hour after the redrive has ended."""

    command = models.UUIDField(primary_key=True)
    application = models.TextField()
    kept_at = models.DateTimeField()
    #: 16 bytes each, those of a task by position.
    ids = models.BinaryField()
    #: They were decided in this time, both included.
    since = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        db_table = "redrive_selection"


class LogGap(Table):
    """Events that a log lacks, since PostgreSQL was restored from an older dump."""

    id = models.BigAutoField(primary_key=True)
    application = models.TextField()
    #: The log positions of the missing events.
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    noticed_at = models.DateTimeField()

    class Meta:
        db_table = "log_gap"
        constraints = [
            models.UniqueConstraint(
                fields=["application", "first", "last"], name="log_gap_noticed_once"
            )
        ]


class AgentCredential(Table):
    """A password of the Redis user of an application's agents; Redis follows this table."""

    id = models.BigAutoField(primary_key=True)
    application = models.TextField()
    #: In hexadecimal digits, as Redis stores it. Passwords are random, so no salt is needed.
    password_sha256 = models.TextField()
    created_at = models.DateTimeField()
    actor = models.TextField()

    class Meta:
        db_table = "agent_credential"
        constraints = [
            models.UniqueConstraint(
                fields=["application", "password_sha256"], name="agent_credential_once"
            )
        ]


class ActRequest(Table):
    """A request of REST that had the id of an act, for as long as ids are known."""

    id = models.UUIDField(primary_key=True)
    #: Of its method, its path and its body.
    digest = models.BinaryField()
    received_at = models.DateTimeField()

    class Meta:
        db_table = "act_request"
        indexes = [models.Index("received_at", name="act_request_oldest")]


class RetentionRefusal(Table):
    """An application whose log and views differ; retention drops nothing until a rebuild."""

    application = models.TextField(primary_key=True)
    since = models.DateTimeField()
    reason = models.TextField()

    class Meta:
        db_table = "retention_refusal"


class LimitReached(Table):
    """How often a limit of the server dropped or refused something of an application."""

    pk = models.CompositePrimaryKey("application", "limit")
    application = models.TextField()
    #: One of `store.Limit`.
    limit = models.TextField()
    #: What the limit has dropped or refused since `first_at`.
    count = models.BigIntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        db_table = "limit_reached"
