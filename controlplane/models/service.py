"""Tables of the service: sightings, audit, agents' credentials, gaps, retention refusals."""

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
    """A change of an account, an act on alerts or on agents' credentials; it is in no log."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    actor = models.TextField()
    #: The account or application; for alerts the channel, rule or application.
    about = models.TextField(db_column="account")
    #: One of `actions.AccountAct`, `actions.AgentAct` or `alerts.audit.AlertAct`.
    act = models.TextField()
    detail = models.TextField()

    class Meta:
        db_table = "account_change"
        indexes = [models.Index("at", "id", name="account_change_newest")]


class LogGap(Table):
    """Events that a log lacks, since PostgreSQL was restored from an older dump."""

    id = models.BigAutoField(primary_key=True)
    application = models.TextField()
    #: The positions of the missing events.
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


class RetentionRefusal(Table):
    """An application whose log and views differ; retention drops nothing until a rebuild."""

    application = models.TextField(primary_key=True)
    since = models.DateTimeField()
    reason = models.TextField()

    class Meta:
        db_table = "retention_refusal"
