"""The entries of the audit about alerts."""

from __future__ import annotations

from enum import StrEnum

from arrester.controlplane import audit_chain

#: In place of a person, for the messages that the server sends.
SERVER = "arrester"


class AlertAct(StrEnum):
    """The acts on channels, rules, limits, alerts and messages, as the audit names them."""

    CHANNEL_ADDED = "ALERT_CHANNEL_ADDED"
    CHANNEL_DELETED = "ALERT_CHANNEL_DELETED"
    CHANNEL_TESTED = "ALERT_CHANNEL_TESTED"
    RULE_SAVED = "ALERT_RULE_SAVED"
    RULE_DELETED = "ALERT_RULE_DELETED"
    LIMITS_SET = "ALERT_LIMITS_SET"
    ACKNOWLEDGED = "ALERT_ACKNOWLEDGED"
    MESSAGE_SENT = "ALERT_MESSAGE_SENT"
    MESSAGE_FAILED = "ALERT_MESSAGE_FAILED"
    MESSAGE_REPEATED = "ALERT_MESSAGE_REPEATED"
    SUBSCRIPTION_ADDED = "ALERT_SUBSCRIPTION_ADDED"
    SUBSCRIPTION_DELETED = "ALERT_SUBSCRIPTION_DELETED"
    SUBSCRIPTION_REPLAYED = "ALERT_SUBSCRIPTION_REPLAYED"


def record(actor: str, about: str, act: AlertAct, detail: str) -> None:
    """Add an entry to the audit: who did what to which channel, rule or application."""
    audit_chain.append(actor, about, act.value, detail)
