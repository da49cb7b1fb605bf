"""Checks of Redis: version, password, users of agents, memory, clock, disk."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings

from arrester.controlplane import models
from arrester.controlplane.outbound import agent_users, backpressure, quota_check
from arrester.controlplane.queries.operation.installation import clock as clocks
from arrester.controlplane.queries.operation.installation import disk as disks
from arrester.controlplane.queries.operation.installation.finding import (
    Finding,
    error,
    ok,
    warning,
)
from arrester.controlplane.redis import redis_client

MINIMUM = (6, 2)
#: The applications that are named.
_SHOWN = 5
_FULL, _NEARLY_FULL = backpressure.AGENT_MEMORY_SHARE, 0.5


def version() -> Iterator[Finding]:
    """Compare the version with the oldest one that works; refuse Redis Cluster."""
    info = _info("server")
    text = str(info.get("redis_version", ""))
    name = info.get("server_name", "redis")
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
    if numbers < MINIMUM:
        yield error("redis version", text, "Upgrade to Redis 6.2 or newer, or to Valkey.")
    elif "cluster" in (info.get("redis_mode"), info.get("server_mode")):
        advice = "Use one Redis, or an endpoint that follows the master of a replicated one."
        yield error("redis version", f"{text}, Redis Cluster", advice)
    else:
        shown = f"{name} {info['valkey_version']}" if "valkey_version" in info else text
        yield ok("redis version", shown)


def password() -> Iterator[Finding]:
    """Warn of a Redis on the network without a password: anyone there could issue commands."""
    parts = urlsplit(settings.REDIS_URL)
    has_password = bool(parts.password or parse_qs(parts.query).get("password"))
    if not has_password and parts.scheme != "unix":
        advice = "Set `requirepass` or an ACL, and the password in REDIS_URL of server and agents."
        yield warning("redis password", "none", advice)
    else:
        value = "set" if has_password else "none, on a socket"
        yield ok("redis password", value)


def agent_credentials() -> Iterator[Finding]:
    """Check that Redis has the users of the agents' credentials."""
    check = "redis agent users"
    applications = models.AgentCredential.objects.values("application").distinct().count()
    if not applications:
        yield ok(check, "none; agents use the password of the server")
        return
    problem = agent_users.try_publish()
    if problem:
        advice = "See docs/security.md: the credentials of agents."
        yield error(check, problem, advice)
    else:
        yield ok(check, f"{applications}, one of each application with a credential")


def memory() -> Iterator[Finding]:
    """Check the limit of the memory, its use, and that no event is evicted."""
    info = _info("memory")
    policy, limit, used = info["maxmemory_policy"], info["maxmemory"], info["used_memory"]
    if policy != "noeviction" and limit:
        advice = "Set `maxmemory-policy noeviction`: Redis would drop events and commands."
        yield error("redis eviction", str(policy), advice)
    else:
        yield ok("redis eviction", str(policy))
    if not limit:
        advice = "Set `maxmemory`: agents stop at three quarters of it, and use their spools."
        yield warning("redis memory", f"{_megabytes(used)} used, no limit", advice)
        return
    value = f"{_megabytes(used)} of {_megabytes(limit)} used"
    advice = "Start workers, or raise `maxmemory`."
    if used > _FULL * limit:
        yield error("redis memory", f"{value}; agents use their spools", advice)
    elif used > _NEARLY_FULL * limit:
        yield warning("redis memory", value, advice)
    else:
        yield ok("redis memory", value)


def memory_by_application() -> Iterator[Finding]:
    """Report the applications with most memory, as of the last minute."""
    used = {name: each.redis_bytes for name, each in quota_check.usages().items()}
    first = sorted(used, key=lambda name: (-used[name], name))[:_SHOWN]
    shown = ", ".join(f"{name} {_megabytes(used[name])}" for name in first)
    more = f", {len(used) - len(first):,} more" if len(used) > len(first) else ""
    yield ok("redis memory by application", f"{shown}{more}" if used else "not measured yet")


def clock() -> Iterator[Finding]:
    """Compare the clock with that of the web process."""
    yield from clocks.compared("redis clock", _now)


def _now() -> datetime:
    answer: Any = redis_client.client().time()
    seconds, microseconds = answer
    return datetime.fromtimestamp(seconds + microseconds / 10**6, UTC)


def disk() -> Iterator[Finding]:
    """Report the free space of the data folder, if the server's user may read where it is."""
    folder = None
    if disks.is_local(urlsplit(settings.REDIS_URL).hostname):
        try:
            answer: Any = redis_client.client().config_get("dir")
            folder = answer.get("dir")
        except redis_client.ResponseError:
            folder = None
    yield from disks.space("redis disk", folder)


def _info(section: str) -> dict[str, Any]:
    answer: Any = redis_client.client().info(section)
    return dict(answer)


def _megabytes(size: int) -> str:
    return f"{size / 10**6:,.0f} MB"
