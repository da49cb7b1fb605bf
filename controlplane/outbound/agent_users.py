"""The Redis users of agents: make Redis have exactly the users of the table of credentials.

It may run at any time and any number of times. A Redis without ACL, or older than 7, refuses it;
agents with the server's own password work there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from django.db import OperationalError, transaction

from arrester.controlplane import models, store
from arrester.controlplane.redis import redis_client
from arrester.domain.identity import redis_keys
from arrester.domain.wire import append_script

log = logging.getLogger(__name__)
#: The problem that was logged last; each is logged once.
_logged = ""


def publish() -> None:
    """Create, change and delete users of agents in Redis, and load their script.

    Raises RedisError, such as ResponseError if Redis does not permit it.
    """
    redis = redis_client.client()
    with transaction.atomic():
        # Otherwise the older of two calls could restore a password that has been removed.
        store.wait_for_agent_user_lock()
        wanted = _stored()
        try:
            before = _published(redis)
        except redis_client.ResponseError:
            if not wanted:
                return
            raise
        if wanted:
            redis.script_load(append_script.APPEND)
        _set(redis, wanted, surplus=before.keys() - wanted.keys())
        after = _published(redis)
    if before == after:
        return
    for user, words in before.items():
        # A connection outlives its password. The other agents connect again.
        if user in after and not _passwords(words) <= _passwords(after[user]):
            redis.client_kill_filter(user=user)
    # Without an ACL file the next call creates the users again after a restart.
    with suppress(redis_client.ResponseError):
        redis.acl_save()
    changed = {user for user in before.keys() | after.keys() if before.get(user) != after.get(user)}
    log.info("changed Redis users of agents: %s", ", ".join(sorted(changed)))


def try_publish() -> str:
    """Publish if Redis and PostgreSQL answer; else the sweep does it later.

    Return what prevents it, for people; empty if nothing does.
    """
    global _logged
    problem = ""
    try:
        publish()
    except redis_client.ResponseError as exc:
        problem = (
            f"Redis refuses users for agents ({exc}): agents can use the server's password only."
            " Redis 7 or newer is needed, and a user in REDIS_URL that may run ACL"
        )
    except (redis_client.RedisError, OperationalError) as exc:
        problem = f"The Redis users of agents wait for the next periodic check: {exc}"
    if problem and problem != _logged:
        log.warning("%s", problem)
    _logged = problem
    return problem


def rules(application: str, passwords: Iterable[str], *, database: int = 0) -> list[str]:
    """Return the rules of the user of an application's agents, for ACL SETUSER.

    It may do what `agents.transport.redis_client` does, and nothing else. A part in parentheses
    permits its commands with its keys only. EVALSHA runs loaded scripts; each of their commands is
    checked as well, so it changes no more than the other parts permit. No command occupies
    Redis with a short request: XRANGE and SRANDMEMBER answer with much, a pattern of SSCAN compares
    much, and DEL frees millions of members, unlike UNLINK.

    Args:
        application: its name.
        passwords: the SHA-256 of each password.
        database: the number of the server's database in Redis.
    """
    confirmed, sent = redis_keys.confirmed(application, "*"), redis_keys.sent(application, "*")
    heartbeat = redis_keys.heartbeat(application, "*")
    events, limit = redis_keys.events(application), redis_keys.memory_limit(application)
    commands, state = redis_keys.commands(application), redis_keys.state(application)
    signed = redis_keys.signed_state(application)
    overload, report = redis_keys.overload(application), redis_keys.report(application, "*")
    return [
        "reset",
        "on",
        *(f"#{each}" for each in passwords),
        *("+ping", "+time", "+memory|stats"),
        # A connection selects its database, unless that is 0.
        *([f"+select|{database}"] if database else []),
        f"(%RW~{events} +xadd +xlen +memory|usage)",
        f"(~{events} ~{confirmed} ~{limit} ~{sent} +evalsha)",
        f"(%R~{confirmed} +sismember +smembers)",
        f"(%RW~{sent} +sismember +sadd +expire +unlink)",
        f"(%W~{confirmed} +srem)",
        f"(%W~{heartbeat} +set +del)",
        f"(%R~{commands} +xread)",
        f"(%R~{state} %R~{signed} %R~{overload} %R~{report} %R~{limit} +get +mget)",
    ]


def _stored() -> dict[str, tuple[str, list[str]]]:
    """Return each user with its application and the SHA-256 of its passwords."""
    users: dict[str, tuple[str, list[str]]] = {}
    rows = models.AgentCredential.objects.order_by("application", "id")
    for application, password in rows.values_list("application", "password_sha256"):
        user = redis_keys.agent_user(application)
        users.setdefault(user, (application, []))[1].append(password)
    return users


def _published(redis: redis_client.Redis) -> dict[str, list[str]]:
    """Return the users of agents in Redis, each with the words of its rules."""
    answer: Any = redis.acl_list()
    lines = [line.decode() if isinstance(line, bytes) else str(line) for line in answer]
    words = [line.split(" ") for line in lines]
    return {user: rest for _, user, *rest in words if user.startswith(redis_keys.AGENT_USER)}


def _set(
    redis: redis_client.Redis,
    wanted: Mapping[str, tuple[str, list[str]]],
    *,
    surplus: Iterable[str],
) -> None:
    database = int(redis.connection_pool.connection_kwargs.get("db") or 0)
    with redis.pipeline(transaction=False) as pipe:
        for user, (application, passwords) in wanted.items():
            words = rules(application, passwords, database=database)
            pipe.execute_command("ACL SETUSER", user, *words)  # type: ignore[no-untyped-call]
        for user in surplus:
            # Redis also closes the user's connections.
            pipe.acl_deluser(user)
        # The error of a pipeline would have all rules in its message.
        for answer in pipe.execute(raise_on_error=False):
            if isinstance(answer, Exception):
                raise answer


def _passwords(words: Iterable[str]) -> set[str]:
    return {word for word in words if word.startswith("#")}
