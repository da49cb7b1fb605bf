"""Credentials of agents: add and remove them; each act is recorded in its own transaction.

PostgreSQL has the truth. Redis follows after the commit, or by the next periodic check.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from django.conf import settings
from django.db import transaction
from msgspec import Meta

from arrester.controlplane import access, audit_chain, signing
from arrester.controlplane.access.roles import Role
from arrester.controlplane.models import AgentCredential
from arrester.controlplane.outbound import agent_keys, agent_users
from arrester.controlplane.redis import redis_client, redis_urls
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.identity import redis_keys
from arrester.domain.identity.names import check_name

log = logging.getLogger(__name__)
_ONLY_WITH_THE_LAST = "false, unless it is the last credential of the application"


class AgentAct(StrEnum):
    """The acts on credentials of agents, as the audit names them."""

    CREDENTIAL_ADDED = "AGENT_CREDENTIAL_ADDED"
    CREDENTIAL_REMOVED = "AGENT_CREDENTIAL_REMOVED"


class NewAgentCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A new credential; only this has the password, in its URL."""

    id: int
    application: str
    user: Annotated[str, Meta(description="The user in Redis.")]
    redis_url: Annotated[str, Meta(description="REDIS_URL for the environment of the drivers.")]
    server_key: Annotated[
        str, Meta(description="ARRESTER_SERVER_KEY for the drivers: the public key of the server.")
    ]
    problem: Annotated[str, Meta(description="Why Redis does not accept it yet; empty if it does.")]


def add_agent_credential(application: str, *, actor: str) -> NewAgentCredential:
    """Add a credential of an application's agents; earlier ones stay valid.

    Requires the role admin on the application.
    """
    check_name("application", application)
    with access.acting_on(application, least=Role.ADMIN):
        return _add(application, actor=actor)


def _add(application: str, *, actor: str) -> NewAgentCredential:
    password = secrets.token_urlsafe(32)
    with transaction.atomic():
        credential = AgentCredential.objects.create(
            application=application,
            password_sha256=_digest(password),
            created_at=datetime.now(UTC),
            actor=actor,
        )
        _record(actor, credential, AgentAct.CREDENTIAL_ADDED)
    return NewAgentCredential(
        id=credential.id,
        application=application,
        user=redis_keys.agent_user(application),
        redis_url=agent_redis_url(application, password),
        server_key=signing.public_key(),
        problem=agent_users.try_publish(),
    )


def ensure_agent_credential(application: str, password: str, *, actor: str) -> bool:
    """Add the credential with this password unless it exists; return whether it was added."""
    check_name("application", application)
    with transaction.atomic():
        credential, created = AgentCredential.objects.get_or_create(
            application=application,
            password_sha256=_digest(password),
            defaults={"created_at": datetime.now(UTC), "actor": actor},
        )
        if created:
            _record(actor, credential, AgentAct.CREDENTIAL_ADDED)
    agent_users.try_publish()
    return created


def remove_agent_credential(id: int, *, actor: str, delete_keys: bool = False) -> str:
    """Remove a credential and end its connections.

    Return why it is still valid in Redis; empty if it has ended. Raises NotFound. Requires the role
    admin on the application.

    Args:
        id: its number.
        actor: the admin.
        delete_keys: also delete what the agents have written into Redis, such as events that are
            not processed. Only with the last credential of the application, else InvalidValue.
    """
    missing = NotFound(f"there is no credential {id} of an agent")
    credential = AgentCredential.objects.filter(id=id).first()
    if credential is None:
        raise missing
    application = credential.application
    with access.acting_on(application, least=Role.ADMIN):
        with transaction.atomic():
            if not AgentCredential.objects.filter(id=id).delete()[0]:
                raise missing
            if delete_keys and AgentCredential.objects.filter(application=application).exists():
                raise InvalidValue("delete_keys", delete_keys, _ONLY_WITH_THE_LAST)
            _record(actor, credential, AgentAct.CREDENTIAL_REMOVED)
        problem = agent_users.try_publish()
        return problem or (_delete_keys(application) if delete_keys else "")


def _delete_keys(application: str) -> str:
    """Delete what agents have written; return why it was not deleted."""
    try:
        deleted = agent_keys.delete(application)
    except redis_client.RedisError as exc:
        return f"The keys of {application} in Redis were not deleted: {exc}"
    log.info("%s: deleted %s keys in Redis", application, deleted)
    return ""


def agent_redis_url(application: str, password: str) -> str:
    """Return the value of REDIS_URL for an application's drivers."""
    url = settings.ENVIRONMENT.agent_redis_url or settings.REDIS_URL
    return redis_urls.with_login(url, redis_keys.agent_user(application), password)


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def _record(actor: str, credential: AgentCredential, act: AgentAct) -> None:
    about, detail = credential.application, f"credential {credential.id}"
    audit_chain.append(actor, about, act.value, detail)
