"""The credentials of agents; nothing has their passwords."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from arrester.controlplane import models
from arrester.domain.identity import redis_keys


class AgentCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A password of the Redis user of an application's agents."""

    id: int
    application: str
    user: Annotated[str, Meta(description="The user in Redis.")]
    created_at: datetime
    actor: Annotated[str, Meta(description="The admin who created it.")]
    #: The application has no other one.
    last: bool = False


def agent_credentials() -> tuple[AgentCredential, ...]:
    """Return all credentials, by application, the oldest first."""
    rows = list(models.AgentCredential.objects.order_by("application", "id"))
    numbers = Counter(each.application for each in rows)
    return tuple(
        AgentCredential(
            id=each.id,
            application=each.application,
            user=redis_keys.agent_user(each.application),
            created_at=each.created_at,
            actor=each.actor,
            last=numbers[each.application] == 1,
        )
        for each in rows
    )
