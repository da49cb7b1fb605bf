"""The Redis user of an application's agents: what it may do, and attacks that it refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from celery import Celery
from django.conf import settings
from redis import AuthenticationError, ConnectionError, Redis
from redis.exceptions import NoPermissionError

from arrester.agents.transport.redis_client import AppendStatus, RedisClient, RedisRefused
from arrester.agents.transport.sender import Sender
from arrester.agents.transport.server_keys import ServerKeys
from arrester.agents.transport.spool import Spool, SpooledBatch
from arrester.controlplane import actions, embedded, models, queries, signing, tasks
from arrester.controlplane.outbound import agent_users, backpressure
from arrester.controlplane.redis import redis_urls
from arrester.domain.errors import InvalidValue, NotFound, RedisUnavailable
from arrester.domain.identity import redis_keys
from arrester.domain.identity.names import check_name
from arrester.domain.state.states import ApplicationStatus
from arrester.domain.wire import codec
from arrester.domain.wire.signed_messages import parse_keys
from tests.agents.sample_events import INSTANCE, batch_id, some_events
from tests.patience import wait_until

APPLICATION, OTHER = "flights", "movies"
SPOOL = UUID(int=7)
USER = redis_keys.agent_user(APPLICATION)
pytestmark = pytest.mark.django_db


def users(redis: Redis) -> set[str]:
    """Return the names of the users of Redis."""
    return {each.decode() if isinstance(each, bytes) else each for each in redis.acl_users()}


def execute(client: Redis, *words: str) -> object:
    """Run any command."""
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


@pytest.fixture(autouse=True)
def own_redis(redis: Redis) -> Iterator[None]:
    """Begin and end without users of agents and without scripts."""
    yield
    redis.script_flush()
    for user in users(redis):
        if user.startswith(redis_keys.AGENT_USER):
            redis.acl_deluser(user)


@pytest.fixture
def url(redis: Redis) -> str:
    """Return the URL of a new credential of an agent."""
    new = actions.add_agent_credential(APPLICATION, actor="ada")
    assert (new.user, new.problem) == (USER, "")
    return new.redis_url


@pytest.fixture
def agent(url: str) -> Iterator[Redis]:
    """Return a client with the login of an agent of APPLICATION."""
    with Redis.from_url(url, protocol=2) as client:
        yield client


@pytest.fixture
def transport(url: str) -> Iterator[RedisClient]:
    client = RedisClient(url, application=APPLICATION, instance=INSTANCE)
    yield client
    client.close()


def batch(number: int) -> SpooledBatch:
    packed = codec.encode_batch(some_events(number))
    return SpooledBatch(number=number, id=batch_id(number), events=packed)


def test_an_agent_has_all_that_its_transport_uses(redis: Redis, transport: RedisClient) -> None:
    status, [entry] = transport.append(SPOOL, [batch(1)], last=None)
    assert status is AppendStatus.DONE
    assert redis.xlen(redis_keys.events(APPLICATION)) == 1
    redis.sadd(redis_keys.confirmed(APPLICATION, SPOOL), str(batch_id(1)))
    assert transport.confirmations(SPOOL) == [batch_id(1)]
    transport.forget_confirmations(SPOOL, [batch_id(1)])
    assert transport.append(SPOOL, [], last=batch_id(1))[0] is AppendStatus.DONE
    transport.forget_sent(SPOOL)
    assert transport.append(SPOOL, [], last=batch_id(1))[0] is AppendStatus.LOST
    assert not redis.exists(redis_keys.confirmed(APPLICATION, SPOOL))
    redis.set(redis_keys.overload(APPLICATION), "COUNTS")
    redis.set(redis_keys.report(APPLICATION, INSTANCE), "a report")
    assert transport.beat(b"alive") == (True, "a report")
    assert redis.get(redis_keys.heartbeat(APPLICATION, INSTANCE)) == b"alive"
    transport.delete_heartbeat()
    assert not redis.exists(redis_keys.heartbeat(APPLICATION, INSTANCE))
    redis.set(redis_keys.state(APPLICATION), "LATCHED")
    assert transport.is_latched()
    redis.xadd(redis_keys.commands(APPLICATION), {"command": "1", "body": "stop"})
    assert [each.body for each in transport.commands(after="0", seconds=1)] == [b"stop"]
    assert transport.server_time().year > 2000
    redis.xadd(redis_keys.events(APPLICATION), {"ballast": b"x" * 2**20})
    backpressure.publish_memory_limit([APPLICATION], 1)
    assert transport.append(SPOOL, [batch(2)], last=None) == (AppendStatus.FULL, [])
    assert entry


@pytest.mark.parametrize("signed", [False, True])
def test_a_sender_delivers_and_forgets_with_its_own_user(
    redis: Redis, transport: RedisClient, tmp_path: Path, signed: bool
) -> None:
    if signed:
        keys = parse_keys(signing.public_key())
        transport.keys = ServerKeys(keys, application=APPLICATION)
    spool = Spool(tmp_path / "spool.sqlite", id=SPOOL, limit_bytes=2**30)
    sender = Sender(spool, transport, heartbeat=lambda: b"alive")
    for number in range(3):
        spool.put(batch_id(number), some_events(number))
    sender.start()
    events = redis_keys.events(APPLICATION)
    wait_until(lambda: redis.xlen(events) == 3)
    ids = [batch_id(each) for each in range(3)]
    record = signing.sign_confirmation(APPLICATION, SPOOL, ids)
    with redis.pipeline(transaction=True) as pipeline:
        pipeline.sadd(redis_keys.confirmed(APPLICATION, SPOOL), *map(str, ids))
        pipeline.sadd(redis_keys.signed_confirmations(APPLICATION, SPOOL), record)
        pipeline.execute()
    wait_until(lambda: sender.confirmed == 3 and spool.events == 0)
    at = transport.server_time()
    state = signing.sign_state(APPLICATION, ApplicationStatus.LATCHED, at=at)
    redis.mset(
        {redis_keys.state(APPLICATION): "LATCHED", redis_keys.signed_state(APPLICATION): state}
    )
    assert transport.is_latched()
    sender.stop(flush_seconds=1)
    spool.close()


OWN, FOREIGN = APPLICATION, OTHER
#: In the words of Valkey, and of Redis 7.0.
REFUSED_IN_SCRIPT = r"ACL failure in script|No permissions|can't run this command"
ATTACKS: list[tuple[str, ...]] = [
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("RANDOMKEY",),
    ("DBSIZE",),
    ("INFO",),
    ("CONFIG", "GET", "requirepass"),
    ("CONFIG", "SET", "maxmemory", "1"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", USER, "+@all", "~*"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("CLIENT", "LIST"),
    ("MONITOR",),
    ("SHUTDOWN", "NOSAVE"),
    ("REPLICAOF", "127.0.0.1", "1"),
    ("SELECT", "1"),
    ("SWAPDB", "0", "1"),
    ("MOVE", redis_keys.events(OWN), "1"),
    ("PUBLISH", "/0.celery.pidbox", "shutdown"),
    ("SUBSCRIBE", "/0.celery.pidbox"),
    ("LPUSH", "arrester", "a task"),
    ("LRANGE", "arrester", "0", "-1"),
    ("EVAL", "while true do end", "0"),
    ("SCRIPT", "LOAD", "while true do end"),
    ("SCRIPT", "FLUSH"),
    ("FUNCTION", "FLUSH"),
    # Of another application.
    ("GET", redis_keys.state(FOREIGN)),
    ("MGET", redis_keys.overload(OWN), redis_keys.overload(FOREIGN)),
    ("EXISTS", redis_keys.state(FOREIGN)),
    ("XLEN", redis_keys.events(FOREIGN)),
    ("XADD", redis_keys.events(FOREIGN), "*", "batch", "x"),
    ("XREAD", "STREAMS", redis_keys.commands(FOREIGN), "0"),
    ("XADD", redis_keys.commands(FOREIGN), "*", "command", "x", "body", "x"),
    ("SET", redis_keys.heartbeat(FOREIGN, INSTANCE), "alive"),
    ("DEL", redis_keys.heartbeat(FOREIGN, INSTANCE)),
    ("SMEMBERS", redis_keys.confirmed(FOREIGN, SPOOL)),
    ("SISMEMBER", redis_keys.sent(FOREIGN, SPOOL), "x"),
    ("SADD", redis_keys.sent(FOREIGN, SPOOL), "x"),
    ("UNLINK", redis_keys.sent(FOREIGN, SPOOL)),
    ("SADD", redis_keys.confirmed(FOREIGN, SPOOL), str(batch_id(1))),
    ("SREM", redis_keys.confirmed(FOREIGN, SPOOL), str(batch_id(1))),
    ("SET", redis_keys.state(FOREIGN), "LATCHED"),
    ("MEMORY", "USAGE", redis_keys.events(FOREIGN)),
    # Short requests with large answers: of its own entries, or of one member again and again.
    ("XRANGE", redis_keys.events(OWN), "-", "+"),
    ("XREVRANGE", redis_keys.events(OWN), "+", "-"),
    ("XREAD", "STREAMS", redis_keys.events(OWN), "0"),
    ("XINFO", "STREAM", redis_keys.events(OWN)),
    ("SRANDMEMBER", redis_keys.confirmed(OWN, SPOOL), "-9"),
    ("SMEMBERS", redis_keys.sent(OWN, SPOOL)),
    # A pattern is compared with each member; millions of members are freed at once.
    ("SSCAN", redis_keys.confirmed(OWN, SPOOL), "0", "MATCH", "x"),
    ("DEL", redis_keys.sent(OWN, SPOOL)),
    ("GET", redis_keys.heartbeat(OWN, INSTANCE)),
    # A name that begins with the own one.
    ("XADD", redis_keys.events(f"{OWN}-2"), "*", "batch", "x"),
    # Of the own application, but written by the server only.
    ("XADD", redis_keys.commands(OWN), "*", "command", "x", "body", "x"),
    ("XDEL", redis_keys.commands(OWN), "0-1"),
    ("DEL", redis_keys.commands(OWN)),
    ("SET", redis_keys.state(OWN), "OPEN"),
    ("DEL", redis_keys.state(OWN)),
    ("SADD", redis_keys.confirmed(OWN, SPOOL), str(batch_id(1))),
    ("SADD", redis_keys.signed_confirmations(OWN, SPOOL), "x"),
    ("SET", redis_keys.signed_state(OWN), "x"),
    ("GET", redis_keys.signed_state(FOREIGN)),
    ("SREM", redis_keys.signed_confirmations(FOREIGN, SPOOL), "x"),
    ("SET", redis_keys.overload(OWN), "COUNTS"),
    ("SET", redis_keys.report(OWN, INSTANCE), "x"),
    ("SET", redis_keys.memory_limit(OWN), "0"),
    ("SET", redis_keys.pending_fold(OWN), "x"),
    ("GET", redis_keys.pending_fold(OWN)),
    ("DEL", redis_keys.events(OWN)),
    ("XTRIM", redis_keys.events(OWN), "MAXLEN", "0"),
    ("RENAME", redis_keys.heartbeat(OWN, INSTANCE), redis_keys.state(OWN)),
    ("SET", redis_keys.WATCH, "x"),
    ("GET", redis_keys.WATCH),
]


@pytest.mark.parametrize("command", ATTACKS, ids=lambda words: " ".join(map(str, words))[:60])
def test_an_agent_is_refused_all_else(agent: Redis, command: tuple[str, ...]) -> None:
    with pytest.raises(NoPermissionError):
        execute(agent, *command)


def test_a_loaded_script_gives_an_agent_no_further_rights(redis: Redis, agent: Redis) -> None:
    for text, key in (
        ("return redis.call('SADD', KEYS[1], 'x')", redis_keys.confirmed(OWN, SPOOL)),
        ("return redis.call('SET', 'arrester:movies:state', 'x')", redis_keys.events(OWN)),
        ("return redis.call('SET', KEYS[1], '0')", redis_keys.memory_limit(OWN)),
    ):
        sha = str(redis.script_load(text))
        with pytest.raises(Exception, match=REFUSED_IN_SCRIPT):
            agent.evalsha(sha, 1, key)
    sha = str(redis.script_load("return redis.call('XLEN', KEYS[1])"))
    with pytest.raises(NoPermissionError):
        agent.evalsha(sha, 1, redis_keys.events(FOREIGN))
    assert not redis.keys("*")


def test_an_agent_cannot_shut_down_celery_workers(url: str) -> None:
    # As the current application it would send all later tasks of this process.
    with Celery(broker=redis_urls.for_celery(url), set_as_current=False) as attacker:
        with pytest.raises(Exception, match="no permissions"):
            attacker.control.broadcast("shutdown")
        with pytest.raises(Exception, match="no permissions"):
            attacker.send_task("arrester.fold_stream", args=[OTHER], queue="arrester", retry=False)


def test_the_keys_of_agents_are_deleted_with_their_last_credential(redis: Redis) -> None:
    first = actions.add_agent_credential(APPLICATION, actor="ada")
    second = actions.add_agent_credential(APPLICATION, actor="ada")
    written = [
        redis_keys.events(APPLICATION),
        redis_keys.confirmed(APPLICATION, INSTANCE),
        redis_keys.sent(APPLICATION, INSTANCE),
        redis_keys.heartbeat(APPLICATION, INSTANCE),
    ]
    others = [redis_keys.commands(APPLICATION), redis_keys.heartbeat(OTHER, INSTANCE)]
    for key in (*written, *others):
        redis.set(key, "x")
    with pytest.raises(InvalidValue, match="the last credential of the application"):
        actions.remove_agent_credential(first.id, actor="ada", delete_keys=True)
    assert models.AgentCredential.objects.filter(id=first.id).exists()
    actions.remove_agent_credential(first.id, actor="ada")
    assert redis.exists(*written) == 4
    actions.remove_agent_credential(second.id, actor="ada", delete_keys=True)
    assert (redis.exists(*written), redis.exists(*others)) == (0, 2)


def test_a_password_is_replaced_without_an_interruption(redis: Redis, url: str) -> None:
    first = models.AgentCredential.objects.get()
    second = actions.add_agent_credential(APPLICATION, actor="bob")
    old, new = Redis.from_url(url, protocol=2), Redis.from_url(second.redis_url, protocol=2)
    assert old.ping()
    assert new.ping()
    assert actions.remove_agent_credential(first.id, actor="bob") == ""
    with pytest.raises((AuthenticationError, ConnectionError)):
        old.ping()
    with pytest.raises(AuthenticationError):
        old.ping()
    assert new.ping()
    actions.remove_agent_credential(second.id, actor="bob")
    assert USER not in users(redis)
    with pytest.raises(NotFound):
        actions.remove_agent_credential(second.id, actor="bob")
    old.close()
    new.close()
    acts = [(each.actor, each.about, each.act) for each in models.AuditEntry.objects.order_by("id")]
    added, removed = "AGENT_CREDENTIAL_ADDED", "AGENT_CREDENTIAL_REMOVED"
    assert acts == [
        ("ada", APPLICATION, added),
        ("bob", APPLICATION, added),
        ("bob", APPLICATION, removed),
        ("bob", APPLICATION, removed),
    ]


def test_no_password_is_stored(url: str) -> None:
    password = url.partition(f"{USER}:")[2].partition("@")[0]
    assert len(password) > 40
    [row] = models.AgentCredential.objects.values()
    assert password not in str(row)
    assert password not in str(list(models.AuditEntry.objects.values()))


def test_the_sweep_restores_the_users_of_an_emptied_redis(
    redis: Redis, url: str, transport: RedisClient
) -> None:
    redis.acl_deluser(USER)
    redis.script_flush()
    redis.acl_setuser(redis_keys.agent_user("gone"), enabled=True, nopass=True)
    with pytest.raises(RedisUnavailable):
        transport.server_time()
    tasks.sweep()
    assert transport.append(SPOOL, [batch(1)], last=None)[0] is AppendStatus.DONE
    assert users(redis) & {USER, redis_keys.agent_user("gone")} == {USER}


def test_an_agent_waits_for_the_script_after_a_restart_of_redis(
    redis: Redis, transport: RedisClient
) -> None:
    redis.script_flush()
    with pytest.raises(RedisUnavailable, match="has not loaded the script") as error:
        transport.append(SPOOL, [batch(1)], last=None)
    assert not isinstance(error.value, RedisRefused)
    tasks.sweep()
    assert transport.append(SPOOL, [batch(1)], last=None)[0] is AppendStatus.DONE


def test_changed_rights_are_restored(redis: Redis, agent: Redis) -> None:
    execute(redis, "ACL SETUSER", USER, "+flushall")
    tasks.sweep()
    with pytest.raises(NoPermissionError):
        agent.flushall()


def test_a_redis_that_refuses_acl_is_one_finding(
    redis: Redis,
    services: embedded.Urls,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    execute(redis, "ACL SETUSER", "managed", "on", ">secret", "~*", "&*", "+@all", "-acl")
    managed = redis_urls.with_login(services.redis, "managed", "secret")
    monkeypatch.setattr(settings, "REDIS_URL", managed)
    try:
        assert agent_users.try_publish() == ""
        new = actions.add_agent_credential(APPLICATION, actor="ada")
        with caplog.at_level(logging.WARNING):
            tasks.sweep()
            tasks.sweep()
        [finding] = [each for each in queries.findings() if each.check == "redis agent users"]
    finally:
        redis.acl_deluser("managed")
    assert new.problem.startswith("Redis refuses users for agents")
    assert finding.level is queries.Level.ERROR
    assert finding.value == new.problem
    assert caplog.text.count("Redis refuses users") == 1


def test_the_database_of_the_server_is_the_only_one_that_an_agent_may_select() -> None:
    assert "+select|3" in agent_users.rules(APPLICATION, [], database=3)
    assert not [each for each in agent_users.rules(APPLICATION, []) if "select" in each]


def test_a_name_of_an_application_has_no_character_of_a_pattern() -> None:
    for character in "*?[]\\ ~:%()":
        with pytest.raises(InvalidValue):
            check_name("application", f"a{character}b")
    with pytest.raises(InvalidValue):
        actions.add_agent_credential("*", actor="ada")
    assert not models.AgentCredential.objects.exists()


def test_the_url_has_the_address_that_drivers_reach(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = "rediss://redis.example:6380/0?ssl_ca_certs=/etc/ca.pem"
    environment = type(settings.ENVIRONMENT).read({"ARRESTER_AGENT_REDIS_URL": outside})
    monkeypatch.setattr(settings, "ENVIRONMENT", environment)
    url = actions.agent_redis_url(APPLICATION, "p/w")
    assert url == (f"rediss://{USER}:p%2Fw@redis.example:6380/0?ssl_ca_certs=/etc/ca.pem")


def test_a_given_password_is_added_once(redis: Redis) -> None:
    password = uuid4().hex
    assert actions.ensure_agent_credential(APPLICATION, password, actor="bootstrap")
    assert not actions.ensure_agent_credential(APPLICATION, password, actor="bootstrap")
    with Redis.from_url(actions.agent_redis_url(APPLICATION, password), protocol=2) as agent:
        assert agent.ping()
