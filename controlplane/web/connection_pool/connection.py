"""A PostgreSQL connection whose statements end with an error if PostgreSQL hangs, or if the client
of the request has left."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from psycopg import Connection, OperationalError, errors
from psycopg.abc import PQGen

from arrester.controlplane.web import clients
from arrester.controlplane.web.hang import ANSWER_SECONDS, CONNECT_SECONDS, Hang

T = TypeVar("T")
HANG: Final = Hang("PostgreSQL")
#: libpq and psycopg have no time-out below two seconds: they wait in a thread.
_CONNECTING: Final = ThreadPoolExecutor(max_workers=16, thread_name_prefix="connect")


class _Hosts:
    """The host and port of the last connection, if the URL has several.

    The first host of the URL may be gone for days after PostgreSQL has failed over, and a request
    does not wait for longer than for one.
    """

    def __init__(self) -> None:
        self._last = ("", "")

    def remember(self, connection: PageConnection) -> None:
        self._last = (connection.info.host, str(connection.info.port))

    def last_first(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters with the last host before the others."""
        hosts = str(params.get("host") or "").split(",")
        ports = str(params.get("port") or "").split(",")
        if len(hosts) == 1:
            return params
        places = [*zip(hosts, ports if len(ports) > 1 else ports * len(hosts), strict=True)]
        places.sort(key=lambda each: each != self._last)
        found = dict(params, host=",".join(host for host, _ in places))
        return found | (
            {"port": ",".join(port for _, port in places)} if params.get("port") else {}
        )


class PageConnection(Connection[Any]):
    """A connection for requests: a slow statement continues, one without an answer ends."""

    #: Where a second connection asks about this one; None: each time-out ends the statement.
    params: dict[str, Any] | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for an answer; raise OperationalError, and close the connection, if PostgreSQL hangs
        or did not receive the statement, or if the client of the request has left."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        executing = True
        while not clients.has_left():
            try:
                return super().wait(gen, interval, ANSWER_SECONDS if executing else 0.0)
            except errors._WaitTimeout:
                if not executing or self.params is None:
                    break
                # If not: once more without a wait, the answer may have come meanwhile.
                executing = _is_executing(self.params, self.info.backend_pid)
        if clients.has_left():
            # Closing alone would let PostgreSQL complete the statement.
            self.cancel_safe(timeout=CONNECT_SECONDS)
            self.close()
            raise OperationalError("the client has left")
        HANG.notice()
        self.close()
        raise OperationalError(HANG.message)


_HOSTS: Final = _Hosts()


def connect(params: dict[str, Any]) -> PageConnection:
    """Return a new connection; raise OperationalError after `CONNECT_SECONDS`."""
    if HANG.noticed:
        raise OperationalError(HANG.message)
    params = _HOSTS.last_first(params) | {"connect_timeout": 2}
    connecting = _CONNECTING.submit(PageConnection.connect, **params)
    try:
        connection = connecting.result(CONNECT_SECONDS)
        _HOSTS.remember(connection)
        return connection
    except TimeoutError:
        HANG.notice()
        connecting.add_done_callback(_close_late)
        raise OperationalError(HANG.message) from None


def _close_late(connecting: Future[PageConnection]) -> None:
    error = connecting.exception()
    if error is None:
        connection = connecting.result()
        _HOSTS.remember(connection)
        connection.close()
    else:
        # The frames of the error refer to the socket: PostgreSQL would wait a minute for the
        # password.
        error.__traceback__ = None


def _is_executing(params: dict[str, Any], pid: int) -> bool:
    """Whether PostgreSQL answers, and executes the statement of another connection of ours."""
    try:
        with connect(params) as probe:
            found = probe.execute(
                "SELECT state = 'active' FROM pg_stat_activity WHERE pid = %s", [pid]
            ).fetchone()
    except OperationalError:
        return False
    return found is not None and bool(found[0])
