"""A PostgreSQL and its standby, on TCP ports, of which a test promotes the second."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from arrester.controlplane.embedded import process
from arrester.controlplane.embedded.home import Credentials
from tests import scratch
from tests.patience import wait_until
from tests.ports import free_port
from tests.postgres_server import PostgresServer, TcpHome
from tests.services import REPOSITORY


class _Primary(PostgresServer):
    """Commits wait for the standby, if one is named."""

    def _options(self) -> list[str]:
        return [*super()._options(), "-c", "synchronous_commit=on"]


class _Standby(_Primary):
    """A server that begins with a copy of the primary, and receives its log."""

    primary: _Primary

    def _initialise(self, bin_folder: Path) -> None:
        data, account = self.home.postgres_data, process.service_account()
        data.mkdir(mode=0o700)
        if account is not None:
            os.chown(data, account.pw_uid, account.pw_gid)
        url = self.primary.home.urls(self.credentials).admin_database
        options = ["--write-recovery-conf", "--checkpoint", "fast", "--no-sync"]
        child = process.start(
            [bin_folder / "pg_basebackup", "--dbname", url, "--pgdata", data, *options],
            log=self.log,
            account=account,
        )
        if child.wait() != 0:
            raise self._failure("pg_basebackup failed")

    def _create_roles(self) -> None:
        """It has those of the primary."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary and its standby."""

    primary: PostgresServer
    standby: PostgresServer

    def url(self, role: str) -> str:
        """Return the URL of the one that accepts writes, as `app` or `owner`."""
        password = getattr(self.primary.credentials, role)
        places = ",".join(f"127.0.0.1:{each.home.port}" for each in (self.primary, self.standby))
        options = "target_session_attrs=read-write"
        return f"postgresql://arrester_{role}:{password}@{places}/arrester?{options}"

    def wait_for_standby(self) -> None:
        """Let each commit wait until the standby has it on its disk."""
        self.primary.execute(
            "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
        )
        state = "SELECT sync_state FROM pg_stat_replication"
        wait_until(lambda: self.primary.rows(state) == [("sync",)], what="synchronous standby")

    def disconnect_standby(self) -> None:
        """End the replication: later commits are on the primary only."""
        self.standby.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        left = "SELECT 1 FROM pg_stat_replication"
        wait_until(lambda: self.primary.rows(left) == [], what="no standby")

    def fail_over(self) -> None:
        """Kill the primary with all its processes, and promote the standby."""
        assert self.primary.child is not None
        first = psutil.Process(self.primary.child.pid)
        killed = [first, *first.children(recursive=True)]
        for each in killed:
            each.kill()
        self.primary.child.wait()
        psutil.wait_procs(killed)
        self.standby.execute("SELECT pg_promote()")


@contextmanager
def running() -> Iterator[Pair]:
    """Run both servers with a migrated database until the block ends."""
    with (
        tempfile.TemporaryDirectory(prefix="arrester-pair-", dir=scratch.FOLDER) as folder,
        ExitStack() as stopped,
    ):
        Path(folder).chmod(0o711)
        primary = _started(_Primary, Path(folder) / "primary", None, stopped)
        standby = _started(_Standby, Path(folder) / "standby", primary, stopped)
        pair = Pair(primary, standby)
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
            cwd=REPOSITORY,
            env=os.environ | {"DATABASE_URL": pair.url("owner")},
            check=True,
        )
        yield pair


def _started(
    kind: type[_Primary], place: Path, primary: _Primary | None, stopped: ExitStack
) -> _Primary:
    home = TcpHome(place, free_port())
    home.make()
    credentials: Credentials = home.make_credentials() if primary is None else primary.credentials
    server = kind(home=home, credentials=credentials, durable=False)
    if isinstance(server, _Standby) and primary is not None:
        server.primary = primary
    stopped.callback(home.remove_socket_folder)
    stopped.callback(server.stop)
    server.start()
    return server
