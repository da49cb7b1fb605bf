"""`make chaos ARGS=--noisy-neighbour`: one application sends what harms others, with a credential
of its own, while a quiet one reports failed records, each of which has to be on its page soon.

Most attacks send some megabytes, one as much as Redis takes. Meanwhile a person logs in and reads a
page; the limits are those of a user who looks at it. The attacks on the web process come from other
addresses of this host.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import count
from statistics import quantiles
from typing import Any, NamedTuple
from uuid import UUID

import psutil
import requests
from msgspec.structs import replace
from redis import Redis, RedisError
from requests.adapters import HTTPAdapter

from arrester.domain.events import (
    ApplicationShutdownRequested,
    Event,
    Failure,
    FinalResponse,
    InstanceStarted,
    RecordFailed,
    Run,
    TaskPaused,
    ThreadStarted,
)
from arrester.domain.identity import redis_keys, uuids
from arrester.domain.wire import append_script, codec, limits
from tests.chaos.product import Product
from tests.e2e.stack import eventually

NOISY, QUIET = "noisy", "quiet"
#: How long the quiet application is observed in each attack.
ATTACK_SECONDS = 20.0
#: The most that may pass from an event to its page, at p99, and from a new error to its alert.
PAGE_SECONDS, ALERT_SECONDS = 5.0, 10.0
#: The most that a log-in and a page after it may take.
LOGIN_SECONDS = 5.0
#: What the processes may need above their memory when idle, in MB.
MEMORY_MB = 300
_BATCH = 500
#: The most connections to Redis, and to the web process, that an attack holds: fewer than files
#: that this process may open, since it also observes.
_SOCKETS, _SLOW_SOCKETS = 12_000, 4_000
_SPOOL, _INSTANCE = UUID(int=1), UUID(int=2)
_CREDENTIAL = """
from arrester.controlplane import actions
print(actions.add_agent_credential({name!r}, actor="operator").redis_url)
"""
_ACCOUNT = """
from arrester.controlplane import actions
from arrester.controlplane.access.roles import Role
print(actions.create_account({name!r}, Role.VIEWER, actor="operator"))
"""
_numbers = count(1)
#: Attackers do not have the threads of this process.
_PROCESSES = multiprocessing.get_context("spawn")

Entry = dict[Any, Any]


class Attacker(NamedTuple):
    """What an attack may use."""

    #: The port of the web process, and the socket of Redis.
    port: int
    path: str
    #: The login of the noisy application in Redis.
    login: tuple[str, str]
    #: An account of the dashboard.
    password: str

    @property
    def url(self) -> str:
        """The web process."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def redis(self) -> Redis:
        """A client of Redis."""
        user, password = self.login
        return Redis(unix_socket_path=self.path, username=user, password=password)


#: It yields after each step, and ends what it holds when it is closed.
Attack = Callable[[Attacker], Generator[None, None, None]]


class Result(NamedTuple):
    """What the quiet application saw during one attack."""

    attack: str
    steps: int
    seconds: list[float]
    alert_seconds: float
    login_seconds: float
    memory_mb: int


def run(product: Product, names: Sequence[str] = ()) -> int:
    """Attack, print what the quiet application saw, and return 1 if a limit was violated."""
    product.start()
    quiet = _connect(product, QUIET)
    attacker = Attacker(
        port=product.port,
        path=str(product.home.sockets / "redis.sock"),
        login=_login(_connect(product, NOISY)),
        password=_password(product, NOISY),
    )
    person = _password(product, QUIET)
    _see(product, quiet)
    idle = _memory_mb(product)
    results = [_attack(product, attacker, quiet, person, name, idle) for name in names or ATTACKS]
    print(
        "| attack | steps | event to page, p99, s | new error to alert, s | log-in and page, s |"
        " memory, MB more |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for each in results:
        slowest = _slowest(each)
        print(
            f"| {each.attack} | {each.steps:,} | {slowest:.1f} | {each.alert_seconds:.1f} |"
            f" {each.login_seconds:.1f} | {each.memory_mb} |"
        )
    print(f"load of the last minute: {os.getloadavg()[0]:.1f}")
    violations = [line for each in results for line in _violations(each)]
    violations += _untrue(product, len(results))
    for line in violations:
        print(f"VIOLATION: {line}")
    print(f"{len(violations)} violations")
    return 1 if violations else 0


def _slowest(result: Result) -> float:
    """Return the seconds from an event to its page, at p99."""
    # Twice: the quantiles of one value are not defined.
    return quantiles(result.seconds * 2, n=100, method="inclusive")[98]


def _violations(result: Result) -> Iterator[str]:
    if _slowest(result) > PAGE_SECONDS:
        yield f"{result.attack}: an event was on its page after {max(result.seconds):.1f} s"
    if result.alert_seconds > ALERT_SECONDS:
        yield f"{result.attack}: a new error had its alert after {result.alert_seconds:.1f} s"
    if result.login_seconds > LOGIN_SECONDS:
        yield f"{result.attack}: a person had a page after {result.login_seconds:.1f} s"
    if result.memory_mb > MEMORY_MB:
        yield f"{result.attack}: {result.memory_mb} MB above idle"


def _untrue(product: Product, attacks: int) -> list[str]:
    """Return what the server reports wrongly of the quiet application."""
    # Each attack has a record with a new error, too.
    sent = next(_numbers) - 1 + attacks
    shown: list[dict[str, int]] = []

    def is_true() -> bool:
        with suppress(OSError):
            shown.append(_counts(product))
        return bool(shown) and set(shown[-1].values()) == {sent}

    try:
        eventually(is_true, what=f"{sent} failed records of {QUIET}", every=1)
    except AssertionError:
        return [f"{sent} records failed, shown: {shown[-1:]}"]
    return []


def _counts(product: Product) -> dict[str, int]:
    """Return how many records of the quiet application have failed, as REST counts them."""
    lists = {"errors": "count", "failures": "count", "tasks": "failed"}
    counts = {"application": int(product.get(f"/api/v1/applications/{QUIET}")["failed"])}
    for name, field in lists.items():
        counts[name] = sum(each[field] for each in _all_rows(product, name))
    return counts


def _all_rows(product: Product, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a list of the quiet application, page by page."""
    cursor: str | None = ""
    while cursor is not None:
        page = product.get(f"/api/v1/{name}?application={QUIET}&limit=500&cursor={cursor}")
        yield from page["results"]
        cursor = page["next"]


def _send(name: str, attacker: Attacker, steps: Any) -> None:
    """Attack, in a process of its own that yields the processor to the product.

    An attacker has another machine.
    """
    os.nice(19)
    # It sends what an agent would not encode.
    limits.BATCH_BYTES = sys.maxsize
    for _ in ATTACKS[name](attacker):
        steps.value += 1


def _attack(
    product: Product, attacker: Attacker, quiet: Redis, person: str, name: str, idle: int
) -> Result:
    steps = _PROCESSES.Value("i")
    sender = _PROCESSES.Process(target=_send, args=(name, attacker, steps), daemon=True)
    sender.start()
    found: list[float] = []
    most, began = 0, time.monotonic()
    pool = ThreadPoolExecutor()
    alert = pool.submit(_alert_seconds, product, quiet)
    page = pool.submit(_login_seconds, product, person)
    try:
        while time.monotonic() - began < ATTACK_SECONDS:
            found.append(_see(product, quiet))
            most = max(most, _memory_mb(product))
            time.sleep(0.3)
    finally:
        sender.terminate()
        sender.join()
        pool.shutdown()
    print(f"{name}: {len(found)} events seen", file=sys.stderr, flush=True)
    return Result(name, steps.value, found, alert.result(), page.result(), max(most - idle, 0))


def _see(product: Product, quiet: Redis) -> float:
    """Report a failed record; return the seconds until REST has it."""
    number, began = next(_numbers), time.monotonic()
    _report(quiet, number, "1-00112233445566aa")

    def is_shown() -> bool:
        rows = _rows(product, f"/api/v1/failures?application={QUIET}&limit=20")
        return any(each["first_position"] == number for each in rows)

    return _seconds_until(is_shown, began)


def _alert_seconds(product: Product, quiet: Redis) -> float:
    """Report a new error; return the seconds until it has an alert."""
    began, fingerprint = time.monotonic(), f"1-{time.time_ns():016x}"[:18]
    _report(quiet, 0, fingerprint)

    def has_alert() -> bool:
        rows = _rows(product, f"/api/v1/alerts?application={QUIET}&limit=50")
        return any(fingerprint in str(each) for each in rows)

    return _seconds_until(has_alert, began)


def _login_seconds(product: Product, password: str) -> float:
    """Return the seconds of a log-in and a page after it, beside the beginning of an attack."""
    time.sleep(ATTACK_SECONDS / 4)
    began = time.monotonic()

    def has_page() -> bool:
        with requests.Session() as session, suppress(OSError):
            answer = _log_in(product.url, session, QUIET, password)
            return answer.ok and answer.url.endswith(f"/applications/{QUIET}")
        return False

    return _seconds_until(has_page, began)


def _log_in(url: str, session: requests.Session, name: str, password: str) -> requests.Response:
    """Log in, and return the page of the quiet application."""
    path = f"/applications/{QUIET}"
    session.get(f"{url}/login", timeout=60)
    form = {"username": name, "password": password, "next": path}
    token = {"csrfmiddlewaretoken": session.cookies["csrftoken"]}
    return session.post(f"{url}/login", data=form | token, timeout=60)


def _rows(product: Product, path: str) -> list[dict[str, Any]]:
    """Return the rows of a list; none if it is refused, as with 503."""
    try:
        rows: list[dict[str, Any]] = product.get(path)["results"]
    except OSError as exc:
        print(f"{path}: {exc}", file=sys.stderr, flush=True)
        return []
    return rows


def _seconds_until(look: Callable[[], bool], began: float) -> float:
    """Return the seconds until it is so; PATIENCE_SECONDS if that takes longer."""
    with suppress(AssertionError):
        eventually(look, what="it is shown", every=0.1)
    return time.monotonic() - began


def _report(quiet: Redis, number: int, fingerprint: str) -> None:
    failure = Failure(
        stage="process:check",
        exception_class="ValueError",
        message=f"error {fingerprint}",
        fingerprint=fingerprint,
    )
    failed = RecordFailed(
        task="a", position=number, failure=failure, response=FinalResponse.CONTINUE
    )
    start = [_event(ThreadStarted())] if number == 1 else []
    quiet.xadd(redis_keys.events(QUIET), _entry([*start, _event(failed)]))


def _event(data: Any, *, pipeline: str = "pipeline", instance: UUID = _INSTANCE) -> Event:
    run = Run(pipeline=pipeline, checkpoint=f"cp-{pipeline}", epoch=1)
    return Event(occurred_at=datetime.now(UTC), data=data, run=run, instance=instance)


def _entry(events: list[Event]) -> Entry:
    return {
        "batch": str(uuids.uuid7(datetime.now(UTC))),
        "spool": str(_SPOOL),
        "events": codec.encode_batch(events),
    }


def _failure(number: int, message: str = "bad") -> Failure:
    return Failure(
        stage="process:check",
        exception_class="ValueError",
        message=message,
        fingerprint=f"1-{number:016x}",
    )


def _paused_pipelines() -> Iterator[Entry]:
    """Send tasks that are PAUSED, each in a pipeline of its own."""
    for first in range(0, 5_000, _BATCH):
        yield _entry(
            [
                each
                for number in range(first, first + _BATCH)
                for each in (
                    _event(ThreadStarted(), pipeline=f"p-{number}"),
                    _event(
                        TaskPaused(task="a", position=1, failure=_failure(number)),
                        pipeline=f"p-{number}",
                    ),
                )
            ]
        )


def _new_errors() -> Iterator[Entry]:
    """Send records that fail, each with an error of its own."""
    for first in range(0, 10_000, _BATCH):
        yield _entry(
            [
                _event(
                    RecordFailed(
                        task="a",
                        position=number,
                        failure=_failure(number + 10**9),
                        response=FinalResponse.CONTINUE,
                    )
                )
                for number in range(first, first + _BATCH)
            ]
        )


def _shutdown_requests() -> Iterator[Entry]:
    """Send instances, and requests that each of them answers."""
    for first in range(10**6, 10**6 + 5_000, _BATCH):
        yield _entry(
            [
                replace(
                    _event(InstanceStarted(host="host", pid=1), instance=UUID(int=number)),
                    run=None,
                )
                for number in range(first, first + _BATCH)
            ]
        )
        requested = ApplicationShutdownRequested(reason="disk")
        yield _entry([replace(_event(requested), run=None)] * 200)


def _large_texts() -> Iterator[Entry]:
    """Send one letter, repeated: it needs few bytes on its way."""
    for number in range(50):
        failure = _failure(number + 2 * 10**9, "x" * 1_000_000)
        failed = RecordFailed(
            task="a", position=1, failure=failure, response=FinalResponse.CONTINUE
        )
        yield _entry([_event(failed)] * 20)


def _invalid_entries() -> Iterator[Entry]:
    for _ in range(500):
        yield {"batch": "none", "spool": "none", "events": b"\xff" * 200_000}


def _many_events() -> Iterator[Entry]:
    """Send as fast as Redis takes it."""
    failed = RecordFailed(
        task="a", position=1, failure=_failure(1), response=FinalResponse.CONTINUE
    )
    events = codec.encode_batch([_event(failed)] * 1_000)
    while True:
        yield _entry([]) | {"events": events}


def _large_entries() -> Iterator[Entry]:
    """Send entries of all sizes up to the limit of Redis, of one large field and of several."""
    for size in (250_000, 1_000_000, 8_000_000, 30_000_000) * 5:
        noise = os.urandom(size)
        yield {"batch": "none", "spool": "none", "events": noise}
        yield {"batch": noise[: size // 3], "spool": noise[: size // 3], "events": noise}


def _sending(entries: Callable[[], Iterator[Entry]]) -> Attack:
    """Return an attack that appends entries to the stream of the noisy application."""

    def attack(attacker: Attacker) -> Generator[None, None, None]:
        redis = attacker.redis
        for entry in entries():
            # Redis may refuse the entry: then this attack has reached its limit.
            with suppress(RedisError):
                redis.xadd(redis_keys.events(NOISY), entry)
            yield

    return attack


def _heartbeats(attacker: Attacker) -> Generator[None, None, None]:
    """Write large heartbeats that never expire."""
    redis = attacker.redis
    for number in range(4_000):
        key = redis_keys.heartbeat(NOISY, UUID(int=10**9 + number))
        with suppress(RedisError):
            redis.set(key, b"x" * 50_000)
        yield


def _open(attacker: Attacker) -> socket.socket:
    """Open a connection to Redis, with the login of the noisy application."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(5)
        connection.connect(attacker.path)
        connection.sendall(f"AUTH {' '.join(attacker.login)}\r\n".encode())
        if not connection.recv(100).startswith(b"+OK"):
            raise OSError("refused")
    except OSError:
        connection.close()
        raise
    return connection


def _connections(attacker: Attacker) -> Generator[None, None, None]:
    """Open all connections that Redis permits, and open those again that are closed."""
    opened: list[socket.socket] = []
    try:
        while True:
            try:
                opened.append(_open(attacker))
            except OSError:
                time.sleep(0.05)
                opened = _still_open(opened)
            if len(opened) > _SOCKETS:
                time.sleep(1)
                opened = _still_open(opened)
            yield
    finally:
        _close(opened)


def _still_open(sockets: list[socket.socket]) -> list[socket.socket]:
    """Close the sockets whose other end has closed them, and return the others."""
    kept = []
    for each in sockets:
        try:
            each.setblocking(False)
            is_open = each.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            is_open = True
        except OSError:
            is_open = False
        if is_open:
            kept.append(each)
        else:
            each.close()
    return kept


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _unread_answers(attacker: Attacker) -> Generator[None, None, None]:
    """Request confirmations of many batches on several connections, and read no answer."""
    confirmed = redis_keys.confirmed(NOISY, _SPOOL)
    read = f"SMEMBERS {confirmed}\r\n".encode()
    opened: list[socket.socket] = []
    redis = attacker.redis
    event = codec.encode_batch([_event(ThreadStarted())])
    try:
        while True:
            with suppress(RedisError), redis.pipeline(transaction=False) as pipe:
                for _ in range(500):
                    pipe.xadd(redis_keys.events(NOISY), _entry([]) | {"events": event})
                pipe.execute()
            with suppress(OSError):
                opened.append(_open(attacker))
                for _ in range(1_000):
                    opened[-1].sendall(read)
            yield
    finally:
        _close(opened)


def _small_entries(attacker: Attacker) -> Generator[None, None, None]:
    """Append entries as small and as fast as Redis takes them, then try to read all of them."""
    redis, events = attacker.redis, redis_keys.events(NOISY)
    while True:
        with suppress(RedisError), redis.pipeline(transaction=False) as pipe:
            for _ in range(20_000):
                pipe.execute_command("XADD", events, "*", "b", "")  # type: ignore[no-untyped-call]
            pipe.execute_command("XRANGE", events, "-", "+")  # type: ignore[no-untyped-call]
            pipe.execute()
        yield


def _long_calls(attacker: Attacker) -> Generator[None, None, None]:
    """Call the script of agents with as many batches as Redis reads in one request."""
    redis = attacker.redis
    keys = [
        redis_keys.events(NOISY),
        redis_keys.confirmed(NOISY, _SPOOL),
        redis_keys.memory_limit(NOISY),
        redis_keys.sent(NOISY, _SPOOL),
    ]
    append = redis.register_script(append_script.APPEND)
    arguments: list[str | int] = ["", 10**9, 10**12, str(_SPOOL), "plain", 60, *("b", "") * 500_000]
    while True:
        with suppress(RedisError):
            redis.evalsha(append.sha, len(keys), *keys, *arguments)
        yield


def _session(number: int) -> requests.Session:
    """Return a session of HTTP from another address of this host."""
    session = requests.Session()
    adapter = HTTPAdapter(pool_maxsize=100)
    adapter.poolmanager.connection_pool_kw["source_address"] = (f"127.0.0.{number}", 0)
    session.mount("http://", adapter)
    return session


def _wrong_logins(attacker: Attacker) -> Generator[None, None, None]:
    """Log in with wrong passwords, several at once from each of some addresses."""

    def log_in(number: int) -> None:
        with _session(2 + number % 4) as session, suppress(OSError, KeyError):
            _log_in(attacker.url, session, f"nobody-{number}", "wrong")

    with ThreadPoolExecutor(28) as pool:
        for first in count(step=28):
            yield from pool.map(log_in, range(first, first + 28))


def _live_streams(attacker: Attacker) -> Generator[None, None, None]:
    """Open live streams at once, and read nothing of them."""
    # Not an address of the wrong log-ins, which is locked out.
    with _session(9) as session, ExitStack() as opened, ThreadPoolExecutor(40) as pool:
        with suppress(OSError):
            _log_in(attacker.url, session, NOISY, attacker.password)

        def open_one(_: int) -> None:
            with suppress(OSError):
                url = f"{attacker.url}/live"
                opened.enter_context(session.get(url, stream=True, timeout=10))

        while True:
            yield from pool.map(open_one, range(40))
            time.sleep(1)


def _slow_headers(attacker: Attacker) -> Generator[None, None, None]:
    """Send the headers of many requests slowly, and never all of them."""
    opened: list[socket.socket] = []
    try:
        while True:
            for each in opened:
                with suppress(OSError):
                    each.sendall(b"x")
            for _ in range(min(500, _SLOW_SOCKETS - len(opened))):
                with suppress(OSError):
                    address = ("127.0.0.1", attacker.port)
                    opened.append(socket.create_connection(address, 5, ("127.0.0.2", 0)))
                    opened[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
                yield
            time.sleep(1)
            opened = _still_open(opened)
            yield
    finally:
        _close(opened)


#: What one application, or a person, does, by its name in the table.
ATTACKS: dict[str, Attack] = {
    "nothing, to compare": _sending(lambda: iter(())),
    "PAUSED pipelines": _sending(_paused_pipelines),
    "new error groups": _sending(_new_errors),
    "instances and requests to shut down": _sending(_shutdown_requests),
    "texts of a megabyte": _sending(_large_texts),
    "entries that cannot be read": _sending(_invalid_entries),
    "entries up to the limit of Redis": _sending(_large_entries),
    "heartbeats without an end": _heartbeats,
    "connections to Redis": _connections,
    "answers of Redis that are not read": _unread_answers,
    "small entries without end": _small_entries,
    "long calls of the script": _long_calls,
    "wrong log-ins": _wrong_logins,
    "live streams": _live_streams,
    "slow headers of requests": _slow_headers,
    "events without end": _sending(_many_events),
}


def _connect(product: Product, application: str) -> Redis:
    printed = product.manage("shell", "-v", "0", "-c", _CREDENTIAL.format(name=application))
    login = printed.split()[-1].partition("//")[2].rpartition("@")[0]
    return Redis.from_url(f"redis://{login}@127.0.0.1:{product.proxy.port}/0")


def _memory_mb(product: Product) -> int:
    """Return the memory of web and of the workers, the largest process of each."""
    most = []
    for part in ("web", "worker"):
        sizes = []
        for each in product.processes(part):
            with suppress(psutil.Error):
                sizes.append(each.memory_info().rss)
        most.append(max(sizes, default=0))
    return max(most) // 2**20


def _login(redis: Redis) -> tuple[str, str]:
    """Return the user and the password of a client."""
    values = redis.connection_pool.connection_kwargs
    return values["username"], values["password"]


def _password(product: Product, name: str) -> str:
    """Create an account, and return its password."""
    return product.manage("shell", "-v", "0", "-c", _ACCOUNT.format(name=name)).split()[-1]
