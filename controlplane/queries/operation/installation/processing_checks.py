"""Checks of the processing: processes, fold lag, quarantine, retention, agents."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from django.conf import settings
from packaging.version import InvalidVersion, Version

from arrester import __version__
from arrester.controlplane import models
from arrester.controlplane.outbound import quota_check
from arrester.controlplane.queries.current_state.instances import RunningInstance, instance_page
from arrester.controlplane.queries.operation import health
from arrester.controlplane.queries.operation.installation.clock import ADVICE
from arrester.controlplane.queries.operation.installation.finding import (
    Finding,
    error,
    ok,
    warning,
)
from arrester.controlplane.queries.operation.limits import LATELY, limits_reached
from arrester.controlplane.redis import heartbeats
from arrester.domain.commands.agent_versions import REPORTED_AS, VERSION

#: The newest instances that are checked.
_INSTANCES = 500
_START = {
    "wake": "Start `arrester wake`.",
    "worker": "Start a Celery worker for the queue arrester.",
    "housekeeper": "Start a Celery worker for the queue arrester-housekeeping.",
}


def processes() -> Iterator[Finding]:
    """Report the processes that give no sign."""
    parts = health.health().parts
    for name, advice in _START.items():
        reach = parts[name]
        last = "never seen" if reach.last_seen is None else f"last seen {_age(reach.last_seen)} ago"
        if reach.up:
            yield ok(f"process {name}", last)
        else:
            yield error(f"process {name}", last, advice)


def fold_lag() -> Iterator[Finding]:
    """Compare the age of the oldest waiting batch with the limit at which agents only count."""
    lags = [each for each in health.lags() if each.waiting_seconds is not None]
    if not lags:
        yield ok("fold lag", "no application has reported yet")
        return
    oldest = max(lags, key=lambda each: each.waiting_seconds or 0)
    seconds, limit = oldest.waiting_seconds or 0, settings.ENVIRONMENT.overload_seconds
    waiting = sum(each.waiting or 0 for each in lags)
    value = f"{waiting:,} batches wait, the oldest {seconds:.0f} s"
    advice = f"Start more workers; see the lag of {oldest.application} on its page."
    if seconds > limit:
        yield error("fold lag", f"{value}; agents report counts only", advice)
    elif seconds > limit / 2:
        yield warning("fold lag", value, advice)
    else:
        yield ok("fold lag", value)


def log_gaps() -> Iterator[Finding]:
    """Report events that PostgreSQL lost because it was restored from an older dump."""
    gaps = health.log_gaps()
    for each in gaps:
        value = f"{each.application}: {each.missing:,} events are missing, from @{each.first}"
        advice = "PostgreSQL was restored from an older backup; dead letters and sinks have them."
        yield warning("log", value, advice)
    if not gaps:
        yield ok("log", "no events are missing")


def quarantine() -> Iterator[Finding]:
    """Warn of invalid entries."""
    lags = health.lags()
    invalid, too_old = sum(each.quarantined for each in lags), sum(each.too_old for each in lags)
    if invalid:
        advice = "See the page Quarantine, then requeue (`arrester requeue`) or dismiss them."
        yield warning("quarantine", f"{invalid:,} invalid entries", advice)
    else:
        yield ok("quarantine", "no invalid entries")
    if too_old:
        advice = "Synchronise the clocks of the agents; see ARRESTER_REPLAY_DAYS."
        yield warning("quarantine of old batches", f"{too_old:,} in the last day", advice)


def limits() -> Iterator[Finding]:
    """Report the limits that dropped or refused something of an application in the last day."""
    reached = limits_reached(since=datetime.now(UTC) - LATELY)
    for each in reached:
        advice = f"See the page of {each.application} and the logs of its drivers."
        yield warning("limits", f"{each.application}: {each.text}", advice)
    if not reached:
        yield ok("limits", "none reached in the last day")


def quotas() -> Iterator[Finding]:
    """Report the applications that exceed a quota."""
    found = quota_check.usages()
    for application, usage in sorted(found.items()):
        for each in usage.exceeded:
            value = f"{application}: {each.text}; its agents report counts only"
            advice = "Repair the pipeline, or raise ARRESTER_QUOTAS."
            yield warning("quota", value, advice)
    if not any(usage.exceeded for usage in found.values()):
        yield ok("quotas", f"none of {len(found):,} applications exceeds one")


def retention() -> Iterator[Finding]:
    """Report applications whose log and views differ: nothing of the log is dropped then."""
    refusals = health.refusals()
    for each in refusals:
        advice = f"Run `arrester rebuild --verify {each.application}`, then without --verify."
        yield error("retention", f"refused for {each.application}: {each.reason}", advice)
    if not refusals:
        yield ok("retention", f"{settings.ENVIRONMENT.retention_days} days")


def audit() -> Iterator[Finding]:
    """Report an audit whose chain is not whole."""
    check = models.AuditCheck.objects.first()
    if check is None:
        yield ok("audit", "not verified yet")
    elif check.problem:
        yield error("audit", check.problem, "Run `arrester audit verify`; see docs/security.md.")
    else:
        yield ok("audit", f"chain whole up to entry {check.number:,}")


def alert_channels() -> Iterator[Finding]:
    """Report channels whose last message was not sent."""
    channels = models.AlertChannel.objects.order_by("name")
    failing = [(each, each.failing_since) for each in channels if each.failing_since is not None]
    for each, since in failing:
        value = f"{each.name} fails since {since:%Y-%m-%d %H:%M} UTC: {each.error}"
        advice = "Correct its address on the page of the alert channels, and send a test."
        yield error("alert channel", value, advice)
    if not failing:
        yield ok("alert channels", f"{len(channels):,} channels, none fails")


def agents() -> Iterator[Finding]:
    """Compare the agents of live instances with the server, and their clocks."""
    instances = instance_page(limit=_INSTANCES).rows
    problems = [problem for each in instances for problem in _problems(each)]
    yield from problems
    if not problems:
        yield ok("agents", f"{len(instances):,} live instances")


def _problems(instance: RunningInstance) -> Iterator[Finding]:
    state = instance.state
    name = f"{state.application} on {state.host}, pid {state.pid}"
    if state.lost:
        yield warning("agent heartbeat", f"{name}: LOST", "See the log of its driver.")
    version = state.versions.get("agent")
    if version is not None and _is_newer(version):
        advice = "Upgrade the server: it quarantines events that it does not know."
        yield error("agent version", f"{name}: {version}, newer than {__version__}", advice)
    reported = state.versions.get(REPORTED_AS, "1")
    if state.versions and reported.isdecimal() and int(reported) < VERSION:
        advice = "Upgrade the agent: it does not know all commands."
        yield warning("agent version", f"{name}: {version or 'unknown'}", advice)
    skew = instance.skew_seconds
    if skew is not None and abs(skew) > heartbeats.SKEW_LIMIT.total_seconds():
        yield warning("agent clock", f"{name}: {skew:+.1f} s to the server", ADVICE)


def _is_newer(version: str) -> bool:
    try:
        return Version(version) > Version(__version__)
    except InvalidVersion:
        return False


def _age(moment: datetime) -> str:
    return f"{(datetime.now(UTC) - moment).total_seconds():,.0f} s"
