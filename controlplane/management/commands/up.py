"""Run the product on this machine: servers, web, wake, workers and the demo pipeline."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, BinaryIO

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

import arrester
from arrester.controlplane import embedded, signing
from arrester.controlplane.celery_workers import FOLDS, HOUSEKEEPING, WORKER_OPTIONS
from arrester.controlplane.env import Environment, InvalidSetting
from arrester.controlplane.local import demo, forked
from arrester.controlplane.local.supervisor import Child, SupervisedServer, Supervisor
from arrester.controlplane.management.commands.bootstrap import (
    DEMO_AGENT_PASSWORD,
    USERS,
    password_variable,
)
from arrester.controlplane.outbound import agent_users
from arrester.controlplane.redis import redis_urls
from arrester.controlplane.settings import database_settings
from arrester.domain.identity import redis_keys
from arrester.domain.wire.signed_messages import SERVER_KEY

WEB_START_SECONDS = 60
# The exit code of the demo pipeline after a shutdown command.
DEMO_FINAL_CODES = frozenset({0})
# The folder that contains the package: the clone, or site-packages.
PACKAGE_ROOT = Path(arrester.__file__).parent.parent


class Command(BaseCommand):
    help = (
        "Run the product on this machine until Ctrl-C. The first start creates servers and users."
        " Variables: ARRESTER_HOME, the folder of data, passwords and logs (.arrester);"
        " ARRESTER_PORT, the port of the dashboard (8000)."
    )
    requires_system_checks = []  # noqa: RUF012  # Django's own form

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-demo", action="store_true", help="do not run the demo pipeline")

    def handle(self, *_args: Any, no_demo: bool, **_options: Any) -> None:
        environment: Environment = settings.ENVIRONMENT
        # A shell that starts it in the background has SIGINT ignored.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        try:
            self._run(environment, with_demo=not no_demo)
        except embedded.EmbeddedError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            self.report("stopped")

    def report(self, line: str) -> None:
        try:
            self.stdout.write(f"{time.strftime('%H:%M:%S')} {line}")
            self.stdout.flush()
        except OSError as error:
            # A log on a full disk.
            if error.errno != errno.ENOSPC:
                raise

    def _run(self, environment: Environment, *, with_demo: bool) -> None:
        # Before the port check: a second start should report the first one, not its port.
        embedded.refuse_if_running(environment.home)
        _check_port(environment.port)
        first_start = not embedded.known_secret_key(environment.home)
        self.report(f"[1/4] servers, data in {environment.home}")
        with embedded.servers(
            environment.home,
            postgres=environment.database_url is None,
            redis=environment.redis_url is None,
            report=lambda line: self.report(f"      {line}"),
        ) as servers:
            env = _child_environment(environment, servers)
            self.report("[2/4] tables and first users")
            self._migrate(environment, servers, env, with_demo=with_demo)
            use_servers(env)
            if with_demo and (missing := demo.missing_requirement()):
                self.report(f"      no demo pipeline: it needs {missing}")
                with_demo = False
            if with_demo:
                demo.create_application()
            children = _children(environment, servers, env, with_demo=with_demo)
            supervisor = Supervisor(
                servers=[SupervisedServer(server=each) for each in servers.running],
                children=children,
                report=self.report,
            )
            try:
                self.report(f"[3/4] processes, logs in {servers.home.logs}")
                supervisor.check()
                self._wait_for_web(environment.port)
                self._print_login(environment, servers, first_start=first_start)
                while True:
                    supervisor.check()
                    time.sleep(1)
            finally:
                _ignore_signals()
                supervisor.stop()
                self.report("stopping the servers")

    def _migrate(
        self,
        environment: Environment,
        servers: embedded.Servers,
        env: dict[str, str],
        *,
        with_demo: bool,
    ) -> None:
        """Create the tables as their owner, then the users as the application."""
        owner = environment.migrate_database_url or (
            environment.database_url or servers.urls.migrate_database
        )
        passwords = {password_variable(user): getattr(servers.credentials, user) for user in USERS}
        if with_demo:
            passwords[DEMO_AGENT_PASSWORD] = servers.credentials.demo_agent
        for words, extra in (
            (["migrate", "--verbosity", "1"], {"DATABASE_URL": owner}),
            (["bootstrap"], passwords),
        ):
            log = servers.home.logs / f"{words[0]}.log"
            command = [sys.executable, "-m", "arrester", *words]
            with (
                log.open("wb") as output,
                subprocess.Popen(
                    command,
                    cwd=environment.home,
                    env=env | extra,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                ) as process,
            ):
                try:
                    last = self._show_output(process, output)
                except BaseException:  # Ctrl-C, too: the child ends with its parent
                    process.kill()
                    raise
            if process.returncode != 0:
                raise CommandError(f"`arrester {words[0]}` failed: {last}. Complete output: {log}")

    def _show_output(self, process: subprocess.Popen[bytes], log: BinaryIO) -> str:
        """Write the output of a process to a log; on a terminal also show its newest line, such as
        the migration in progress. Return the last line."""
        assert process.stdout is not None
        written = b""
        while part := os.read(process.stdout.fileno(), 4096):
            log.write(part)
            written += part
            if self.stdout.isatty():
                width = get_terminal_size().columns - 7
                self.stdout.write(f"\r\x1b[K      {_last_line(written)[:width]}", ending="")
                self.stdout.flush()
        if self.stdout.isatty():
            self.stdout.write("\r\x1b[K", ending="")
        return _last_line(written) or "no message"

    def _wait_for_web(self, port: int) -> None:
        deadline = time.monotonic() + WEB_START_SECONDS
        while time.monotonic() < deadline:
            try:
                url = f"http://127.0.0.1:{port}/healthz"
                urllib.request.urlopen(url, timeout=5).close()  # nosec B310
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.2)
        self.report(f"no answer from the web process after {WEB_START_SECONDS} s")

    def _print_login(
        self, environment: Environment, servers: embedded.Servers, *, first_start: bool
    ) -> None:
        """Print where and how to log in; the password at the first start only: logs are kept."""
        self.report("[4/4] ready; Ctrl-C stops everything")
        password = f", password {servers.credentials.operator}" if first_start else ""
        self.stdout.write(
            f"\n    http://127.0.0.1:{environment.port}\n"
            f"    user operator{password}\n"
            f"    initial passwords, also of viewer and admin: {servers.home.credentials_file}\n\n"
        )
        self.stdout.flush()


def _last_line(output: bytes) -> str:
    return output.decode(errors="replace").strip().rpartition("\n")[2].strip()


def use_servers(env: dict[str, str]) -> None:
    """Let this process use the servers of its children.

    It read its settings before they had passwords, on a first start before there was a secret key.
    """
    settings.SECRET_KEY = env["ARRESTER_SECRET_KEY"]
    settings.REDIS_URL = env["REDIS_URL"]
    connections["default"].settings_dict.update(
        database_settings("DATABASE_URL", env["DATABASE_URL"])
    )


def _child_environment(environment: Environment, servers: embedded.Servers) -> dict[str, str]:
    """Return the environment of the children; only migrations need MIGRATE_DATABASE_URL."""
    inherited = {key: value for key, value in os.environ.items() if key != "MIGRATE_DATABASE_URL"}
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    return inherited | {
        "ARRESTER_HOME": str(environment.home),
        # The folder of the demo's dead letters, unless others are configured.
        "ARRESTER_DEAD_LETTERS_ROOTS": os.environ.get("ARRESTER_DEAD_LETTERS_ROOTS")
        or str(environment.home.resolve() / "flights" / "dead-letters"),
        "ARRESTER_SECRET_KEY": environment.secret_key or servers.credentials.secret_key,
        "DATABASE_URL": environment.database_url or servers.urls.database,
        "REDIS_URL": environment.redis_url or servers.urls.redis,
        "ARRESTER_BROKER_URL": environment.broker_url
        or (environment.redis_url or servers.urls.broker),
        "PYTHONPATH": path,
        # The working folder of the children has data folders named like packages.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        # Spark's default is the first python3 on the PATH.
        "PYSPARK_PYTHON": sys.executable,
    }


def demo_environment(env: dict[str, str], *, password: str) -> dict[str, str]:
    """Return the environment of a driver: Redis as an agent, and no secret of the server.

    A Redis that refuses users for agents is used with the password of the server.
    """
    secrets = ("ARRESTER_SECRET_KEY", "ARRESTER_BROKER_URL", "DATABASE_URL")
    own = {name: value for name, value in env.items() if name not in secrets}
    if not agent_users.try_publish():
        user = redis_keys.agent_user(demo.APPLICATION)
        own["REDIS_URL"] = redis_urls.with_login(env["REDIS_URL"], user, password)
    # The default spool of agents is shared by all drivers of this machine.
    own.setdefault(
        "ARRESTER_SPOOL", str(Path(env["ARRESTER_HOME"]).resolve() / "flights" / "spool")
    )
    return own | {SERVER_KEY: signing.public_key(env["ARRESTER_SECRET_KEY"])}


def _children(
    environment: Environment,
    servers: embedded.Servers,
    env: dict[str, str],
    *,
    with_demo: bool,
) -> list[Child]:
    children = [
        Child(
            name=name,
            command=command,
            env=env,
            folder=environment.home,
            log=servers.home.logs / f"{name}.log",
            start_process=forked.start,
        )
        for name, command in _server_commands(environment).items()
    ]
    if with_demo:
        children.append(
            Child(
                name="demo",
                command=[sys.executable, "-m", demo.MODULE],
                env=demo_environment(env, password=servers.credentials.demo_agent),
                folder=environment.home,
                log=servers.home.logs / "demo.log",
                stop_seconds=60,
                final_codes=DEMO_FINAL_CODES,
                should_run=demo.ApplicationCheck().is_open,
            )
        )
    return children


def _server_commands(environment: Environment) -> dict[str, list[str]]:
    """Return the module of each process of the server and its arguments, by its name."""
    worker = ["celery", "-A", "arrester.controlplane", "worker", "--loglevel", "INFO"]
    worker += WORKER_OPTIONS
    return {
        "wake": ["arrester", "wake"],
        "worker": [*worker, "--queues", FOLDS, "--concurrency", "2"],
        # `solo`: a process of its own for tasks would need 50 MB.
        "housekeeper": [
            *[*worker, "--queues", HOUSEKEEPING, "--pool", "solo"],
            *["--hostname", "housekeeper@%h"],
        ],
        "web": [
            "uvicorn",
            "arrester.controlplane.web.asgi:application",
            *["--host", "127.0.0.1", "--port", str(environment.port)],
            # Django reads the headers of proxies: see `dashboard.session`.
            *["--lifespan", "off", "--no-access-log", "--no-proxy-headers"],
            *["--timeout-graceful-shutdown", "5"],
            *["--http", "arrester.controlplane.web.http_protocol:TimedHeaders"],
        ],
    }


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            allowed = f"the port is not free ({error.strerror}); choose another one"
            raise InvalidSetting("ARRESTER_PORT", str(port), allowed) from None


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
