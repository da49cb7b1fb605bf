"""Limit the connections of each application's agents to Redis, which has no such limit itself.

`wake` does it: its own connection is open, also while Redis refuses new ones.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from arrester.controlplane import store
from arrester.controlplane.quotas import Quota
from arrester.controlplane.redis import redis_client
from arrester.domain.identity import redis_keys

log = logging.getLogger(__name__)
#: Connections above this multiple of the quota are closed; above the quota they are reported.
FACTOR = 2


def by_application() -> dict[str, list[int]]:
    """Return the ids of the connections of each application's user, oldest first.

    It is empty if Redis does not permit the list. Raises RedisError.
    """
    found: defaultdict[str, list[int]] = defaultdict(list)
    try:
        clients: Any = redis_client.client().client_list()
    except redis_client.ResponseError:
        return {}
    for each in clients:
        user = each.get("user", "")
        if user.startswith(redis_keys.AGENT_USER):
            found[user.removeprefix(redis_keys.AGENT_USER)].append(int(each["id"]))
    return {name: sorted(ids) for name, ids in found.items()}


def close_surplus(*, now: datetime) -> None:
    """Close the newest connections of applications that have too many; raises RedisError."""
    info: Any = redis_client.client().info("clients")
    if info["connected_clients"] <= FACTOR * settings.ENVIRONMENT.quotas.least(Quota.CONNECTIONS):
        return
    surplus = {
        name: ids[FACTOR * settings.ENVIRONMENT.quotas.of(name)[Quota.CONNECTIONS] :]
        for name, ids in by_application().items()
    }
    closed: Counter[str] = Counter()
    with redis_client.client().pipeline(transaction=False) as pipe:
        names = [name for name, ids in surplus.items() for id in ids]
        for ids in surplus.values():
            for id in ids:
                pipe.client_kill_filter(_id=str(id))
        # Redis answers with 0 for a connection that another `wake` has just closed.
        for name, answer in zip(names, pipe.execute(raise_on_error=False), strict=True):
            closed[name] += answer if isinstance(answer, int) else 0
    _record(+closed, now=now)


def _record(closed: Mapping[str, int], *, now: datetime) -> None:
    for name, number in closed.items():
        log.warning("%s: its agents had too many connections to Redis; closed %s", name, number)
        try:
            store.count_reached(name, store.Limit.CONNECTIONS, count=number, at=now)
        except (DatabaseError, InterfaceError) as exc:
            log.warning("PostgreSQL is unavailable: %s", exc)
