"""The data folder: its paths, credentials and lock."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from arrester.controlplane.embedded.errors import AlreadyRunning, EmbeddedError
from arrester.controlplane.embedded.process import SHARED_ROOT

# The kernel accepts socket paths of up to 107 bytes (103 on macOS); PostgreSQL has the longest.
SOCKET_PATH_BYTES = 103
POSTGRES_SOCKET = ".s.PGSQL.5432"
#: The Redis user of Celery's broker, and its database.
BROKER_USER, BROKER_DATABASE = "arrester-broker", 1
#: Redis has no rights by database: these are Celery's keys, and none of agents in any database.
BROKER_RIGHTS = (
    "~arrester ~arrester[^:]* ~unacked* ~_kombu.* ~*@*.celery.pidbox*"
    " ~????????-????-????-????-????????????.reply.celery.pidbox*"
    f" &/{BROKER_DATABASE}.celery.pidbox +@all -@admin -@dangerous"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Passwords created at the first start; the last three belong to the first users.

    Those that the file of an older version lacks are created, too.
    """

    postgres: str = ""
    owner: str = ""
    app: str = ""
    redis: str = ""
    #: The passwords of Celery's broker in Redis, and of the demo's agent.
    broker: str = ""
    demo_agent: str = ""
    secret_key: str = ""
    operator: str = ""
    viewer: str = ""
    admin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Urls:
    """Server URLs: as the application, as the owner (migrations) and as superuser."""

    database: str
    migrate_database: str
    admin_database: str
    redis: str
    #: Redis for Celery: another user and another database.
    broker: str


@dataclass(frozen=True, slots=True)
class Home:
    """One data folder (ARRESTER_HOME)."""

    path: Path

    @property
    def credentials_file(self) -> Path:
        return self.path / "credentials.json"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def postgres_log(self) -> Path:
        return self.logs / "postgres.log"

    @property
    def redis_log(self) -> Path:
        return self.logs / "redis.log"

    @property
    def redis_data(self) -> Path:
        return self.path / "redis"

    @property
    def postgres_data(self) -> Path:
        if reachable_by_service_account(self.path):
            return self.path / "postgres"
        return SHARED_ROOT / self._digest / "postgres"

    @property
    def sockets(self) -> Path:
        """The folder of the sockets: in the data folder, else a private one with a short path."""
        folder = self.path / "run"
        short = len(os.fsencode(folder / POSTGRES_SOCKET)) <= SOCKET_PATH_BYTES
        if short and reachable_by_service_account(self.path):
            return folder
        # Another user's folder of this name is refused at the start.
        return Path("/tmp") / f"arrester-{os.geteuid()}-{self._digest}"  # nosec B108

    @property
    def _digest(self) -> str:
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]

    def make(self) -> None:
        """Create the folder; raise EmbeddedError if it cannot be used."""
        # If root runs PostgreSQL, its service account needs to traverse the folder.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(mode)
            for folder in (self.logs, self.redis_data):
                folder.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise EmbeddedError(
                f"Cannot use the data folder {self.path} ({error.strerror}): make it a folder"
                " that you own and can write, or set ARRESTER_HOME to another one"
            ) from error

    def urls(self, credentials: Credentials) -> Urls:
        folder = quote(str(self.sockets), safe="")

        def database(role: str, password: str, name: str = "arrester") -> str:
            return f"postgresql://{role}:{password}@/{name}?host={folder}"

        def redis(user: str, password: str, *, number: int) -> str:
            return f"unix://{user}:{password}@{quote(str(self.sockets / 'redis.sock'))}?db={number}"

        return Urls(
            database=database("arrester_app", credentials.app),
            migrate_database=database("arrester_owner", credentials.owner),
            admin_database=database("postgres", credentials.postgres, "postgres"),
            redis=redis("", credentials.redis, number=0),
            broker=redis(BROKER_USER, credentials.broker, number=BROKER_DATABASE),
        )

    def known_credentials(self) -> Credentials:
        """Return the stored credentials; empty ones before the first start."""
        try:
            stored = msgspec.json.decode(self.credentials_file.read_bytes(), type=dict[str, str])
            return Credentials(**stored)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            return Credentials()
        except OSError as error:
            raise EmbeddedError(
                f"{self.credentials_file} cannot be read: {error.strerror}"
            ) from error
        except (msgspec.DecodeError, TypeError) as error:
            raise EmbeddedError(
                f"{self.credentials_file} is damaged ({error}): restore it from a backup,"
                f" or move {self.path} away to start with empty servers"
            ) from error

    def make_credentials(self) -> Credentials:
        """Return the stored credentials; create those that are missing."""
        stored = asdict(self.known_credentials())
        if self.credentials_file.exists() and all(stored.values()):
            return Credentials(**stored)
        complete = Credentials(
            **{name: value or secrets.token_urlsafe(40) for name, value in stored.items()}
        )
        draft = self.credentials_file.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(complete), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.credentials_file)
        return complete

    def remove_socket_folder(self) -> None:
        """Remove the socket folder if it is outside the data folder and empty."""
        if self.sockets.parent != self.path:
            with suppress(OSError):
                self.sockets.rmdir()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the folder; raise AlreadyRunning if another process holds it."""
        with open(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(self.path, int(file.read() or 0)) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def reachable_by_service_account(path: Path) -> bool:
    """Return whether the service account can reach `path`; True unless root runs the servers."""
    if os.geteuid() != 0:
        return True
    existing = [parent for parent in path.absolute().parents if parent.exists()]
    return all(parent.stat().st_mode & 0o001 for parent in existing)
