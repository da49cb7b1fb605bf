"""The only module of the agent that uses Redis: sends batches, reads confirmations and commands.

Every call ends within seconds. Every failure is RedisUnavailable, for the background threads that
call; no pipeline waits for Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast
from uuid import UUID

from arrester.agents.transport.server_keys import ServerKeys, latched_by
from arrester.agents.transport.spool import SpooledBatch
from arrester.domain.errors import RedisUnavailable
from arrester.domain.identity import redis_keys
from arrester.domain.python_versions import UTC, StrEnum
from arrester.domain.state.states import ApplicationStatus
from arrester.domain.wire import append_script
from arrester.domain.wire.signed_messages import PLAIN, SIGNED

# Imported on first use: an agent without REDIS_URL runs without the package.
if TYPE_CHECKING:
    import redis

T = TypeVar("T")

CALL_SECONDS = 2.0
#: The maximum time of one blocking read of commands.
BLOCK_SECONDS = 5.0
#: The entries of an application's stream above which agents wait for the server.
STREAM_LIMIT = 10_000
#: The memory of Redis that the stream may use. All memory is limited by the server's memory limit.
#: Even if others have filled it, an empty stream accepts one batch.
STREAM_BYTES = 256 << 20
CONFIRMATIONS_AT_ONCE = 1000
#: A signed confirmation names up to some hundred batches.
SIGNED_AT_ONCE = 20
COMMANDS_AT_ONCE = 100


class RedisRefused(RedisUnavailable):
    """Redis refuses the user, the password or a permission: waiting does not help."""


class AppendStatus(StrEnum):
    """The result of an append."""

    DONE = "DONE"
    #: The stream is at its limit: only the first entries, or none, were appended.
    FULL = "FULL"
    #: Redis lost entries that it had accepted; nothing was appended.
    LOST = "LOST"


class CommandEntry(NamedTuple):
    """An entry of the command stream."""

    id: str
    body: bytes
    #: Whether the server signed it, or no signature is required.
    authentic: bool = True


class RedisClient:
    """The connections of one instance, usable from several threads."""

    def __init__(
        self,
        url: str,
        *,
        application: str,
        instance: UUID,
        keys: ServerKeys | None = None,
        stream_limit: int = STREAM_LIMIT,
        stream_bytes: int = STREAM_BYTES,
    ) -> None:
        self._application = application
        #: The keys of the server; None: what it sends is accepted without a signature.
        self.keys = keys
        # The address without a password, for messages.
        self._server = url.rpartition("@")[2].partition("?")[0]
        self._expects_tls = url.startswith("rediss://")
        self._heartbeat_key = redis_keys.heartbeat(application, instance)
        self._report_key = redis_keys.report(application, instance)
        self._limits = (stream_limit, stream_bytes)
        self._client = _client(url, CALL_SECONDS)
        self._listener = _client(url, BLOCK_SECONDS + CALL_SECONDS)
        self._append = self._client.register_script(append_script.APPEND)

    def append(
        self, spool: UUID, batches: Sequence[SpooledBatch], *, last: UUID | None
    ) -> tuple[AppendStatus, list[str]]:
        """Append `batches` in order, unless Redis lost `last`, which it had accepted.

        Return the stream ids of the first batches, in order. Without batches this is only the
        check. Redis does all of it in one step, of at most `append_script.MOST_BATCHES`.
        """
        argv: list[str | bytes | int] = [
            "" if last is None else str(last),
            *self._limits,
            str(spool),
            PLAIN if self.keys is None else SIGNED,
            redis_keys.CONFIRMED_SECONDS,
        ]
        for batch in batches:
            argv += [str(batch.id), batch.events]
        keys = [
            redis_keys.events(self._application),
            redis_keys.confirmed(self._application, spool),
            redis_keys.memory_limit(self._application),
            redis_keys.sent(self._application, spool),
        ]
        answer = self._call(lambda: self._run_append(keys, argv))
        status, *entries = (each.decode() for each in cast("list[bytes]", answer))
        return AppendStatus(status), entries

    def confirmations(self, spool: UUID) -> list[UUID]:
        """Return up to some hundred batches of `spool` that the server has committed."""
        key = redis_keys.confirmed(self._application, spool)
        return _uuids(self._members(key, CONFIRMATIONS_AT_ONCE))

    def signed_confirmations(self, spool: UUID) -> list[bytes]:
        """Return up to SIGNED_AT_ONCE signed confirmations of `spool`."""
        return self._members(
            redis_keys.signed_confirmations(self._application, spool), SIGNED_AT_ONCE
        )

    def _members(self, key: str, most: int) -> list[bytes]:
        """Return members of a set: all, if they are fewer than `most`."""
        members = self._call(lambda: cast("set[bytes]", self._client.smembers(key)))
        return [*islice(members, most)]

    def forget_sent(self, spool: UUID) -> None:
        """Delete the last batch that Redis has accepted: unconfirmed ones are sent again."""
        self._call(lambda: self._client.unlink(redis_keys.sent(self._application, spool)))

    def forget_confirmations(self, spool: UUID, batches: Iterable[UUID]) -> None:
        """Delete confirmations that are recorded in the spool, or refused."""
        self._remove(redis_keys.confirmed(self._application, spool), [str(id) for id in batches])

    def forget_signed_confirmations(self, spool: UUID, records: Sequence[bytes]) -> None:
        """Delete signed confirmations that are recorded in the spool, or refused."""
        self._remove(redis_keys.signed_confirmations(self._application, spool), records)

    def _remove(self, key: str, members: Sequence[str | bytes]) -> None:
        if members:
            self._call(lambda: self._client.srem(key, *members))

    def beat(self, heartbeat: bytes) -> tuple[bool, str | None]:
        """Send the heartbeat, which expires after 30 s, and read the requests of the server.

        Return whether failed records are to be counted only, because the server is overloaded, and
        the id of the requested report of task states.
        """
        requests = [redis_keys.overload(self._application), self._report_key]

        def beat_and_read() -> list[bytes | None]:
            with self._client.pipeline(transaction=False) as pipeline:
                pipeline.set(self._heartbeat_key, heartbeat, ex=redis_keys.LOST_AFTER_SECONDS)
                pipeline.mget(requests)
                return cast("list[bytes | None]", pipeline.execute()[1])

        overload, report = self._call(beat_and_read)
        # Any level of overload: a newer server may have levels unknown here.
        return bool(overload), None if report is None else report.decode(errors="replace")

    def delete_heartbeat(self) -> None:
        """Delete the heartbeat: the instance has ended."""
        self._call(lambda: self._client.delete(self._heartbeat_key))

    def is_latched(self) -> bool:
        """Return whether the server last reported the application as LATCHED."""
        keys = self.keys
        if keys is None:
            key = redis_keys.state(self._application)
            return self._call(lambda: self._client.get(key)) == ApplicationStatus.LATCHED.encode()
        plain, signed = self._call(
            lambda: cast(
                "list[bytes | None]",
                self._client.mget(
                    redis_keys.state(self._application), redis_keys.signed_state(self._application)
                ),
            )
        )
        return keys.is_latched(plain, signed, now=self.server_time())

    def latched_by(self) -> str | None:
        """Return who latched the application and why, as one line; None if unknown."""
        key = redis_keys.signed_state(self._application)
        return latched_by(self._call(lambda: cast("bytes | None", self._client.get(key))))

    def server_time(self) -> datetime:
        """Return Redis's clock, which represents the server's."""
        seconds, microseconds = self._call(self._client.time)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)

    def commands(self, *, after: str, seconds: float = BLOCK_SECONDS) -> list[CommandEntry]:
        """Return the commands after the entry `after`, waiting for the first."""
        stream = redis_keys.commands(self._application)
        answer = self._call(
            lambda: self._listener.xread(
                {stream: after}, count=COMMANDS_AT_ONCE, block=int(seconds * 1000)
            )
        )
        streams = cast("list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]", answer or [])
        return [
            CommandEntry(id.decode(), body, self._signs_command(body, fields))
            for _, entries in streams
            for id, fields in entries
            for body in [fields.get(b"body", b"")]
        ]

    def _signs_command(self, body: bytes, fields: Mapping[bytes, bytes]) -> bool:
        return self.keys is None or self.keys.signs_command(body, fields.get(b"signature", b""))

    def close(self) -> None:
        """Close all connections; a call in progress in another thread fails."""
        for client in (self._client, self._listener):
            client.connection_pool.disconnect()

    def _run_append(self, keys: list[str], argv: list[str | bytes | int]) -> object:
        """Run the script; load it if this Redis has been restarted and its user may do that."""
        from redis.exceptions import NoPermissionError, NoScriptError

        try:
            return self._client.evalsha(self._append.sha, len(keys), *keys, *argv)
        except NoScriptError:
            try:
                return self._append(keys=keys, args=argv)
            except NoPermissionError as exc:
                raise RedisUnavailable(
                    f"Redis at {self._server}: the server has not loaded the script of this agent;"
                    " it does so within seconds, if `arrester wake` and a worker run and the server"
                    " is not older than the agent"
                ) from exc

    def _call(self, operation: Callable[[], T]) -> T:
        from redis import AuthenticationError, ConnectionError, RedisError, TimeoutError
        from redis.exceptions import NoPermissionError

        at = f"Redis at {self._server}"
        try:
            return operation()
        except (AuthenticationError, NoPermissionError) as exc:
            raise RedisRefused(
                f"{at} refuses the login or a command: {exc}; after a restart of Redis the server "
                "restores the users of agents within seconds, else correct the user and the "
                "password in REDIS_URL, or the permissions of the user"
            ) from exc
        except (ConnectionError, TimeoutError) as exc:
            tls = " (rediss:// needs a TLS port; a plain port needs redis://)"
            raise RedisUnavailable(f"{at}: {exc}{tls if self._expects_tls else ''}") from exc
        # A closed or foreign server may also send an answer that cannot be decoded.
        except (RedisError, OSError, ValueError, TypeError) as exc:
            raise RedisUnavailable(f"{at}: {exc}") from exc


def _uuids(members: Iterable[bytes]) -> list[UUID]:
    """Return the valid ids of a set."""
    ids = map(_uuid, members)
    return [id for id in ids if id is not None]


def _uuid(text: bytes) -> UUID | None:
    try:
        return UUID(text.decode())
    except ValueError:
        return None


def _client(url: str, seconds: float) -> redis.Redis:
    """Return a client without retries: the caller decides when to try again."""
    import redis
    from redis.backoff import NoBackoff
    from redis.exceptions import ReadOnlyError
    from redis.retry import Retry

    return redis.Redis.from_url(
        url,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        # A former master, which has become a replica: the next call needs a new connection.
        retry_on_error=[ReadOnlyError],
        socket_connect_timeout=CALL_SECONDS,
        socket_timeout=seconds,
    )
