"""Checks of the installation: each finding has a value, a level, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from django.db import DatabaseError, InterfaceError

from arrester.controlplane.queries.operation.installation import (
    postgres_checks,
    processing_checks,
    redis_checks,
    server_checks,
)
from arrester.controlplane.queries.operation.installation.finding import Finding, Level, error
from arrester.controlplane.redis import redis_client

__all__ = ["CHECKS", "Finding", "Level", "findings"]

Check = Callable[[], Iterable[Finding]]
#: All checks in order. A new one is a function here; it may raise errors of its server.
CHECKS: tuple[Check, ...] = (
    server_checks.versions,
    server_checks.settings_for_production,
    postgres_checks.version,
    postgres_checks.migrations,
    postgres_checks.role,
    postgres_checks.clock,
    postgres_checks.disk,
    redis_checks.version,
    redis_checks.password,
    redis_checks.agent_credentials,
    redis_checks.memory,
    redis_checks.memory_by_application,
    redis_checks.clock,
    redis_checks.disk,
    processing_checks.processes,
    processing_checks.fold_lag,
    processing_checks.log_gaps,
    processing_checks.quarantine,
    processing_checks.limits,
    processing_checks.quotas,
    processing_checks.retention,
    processing_checks.audit,
    processing_checks.alert_channels,
    processing_checks.agents,
)


def findings() -> tuple[Finding, ...]:
    """Return the findings of all checks; one that fails is a finding itself."""
    return tuple(finding for check in CHECKS for finding in _run(check))


def _run(check: Check) -> Iterator[Finding]:
    name = f"{check.__module__.rpartition('.')[2].removesuffix('_checks')} {check.__name__}"
    try:
        yield from check()
    except redis_client.RedisError as exc:
        yield error(name, _first_line(exc), "Start Redis, or correct REDIS_URL.")
    except (DatabaseError, InterfaceError) as exc:
        yield error(name, _first_line(exc), "Start PostgreSQL, or correct DATABASE_URL.")


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0]
