"""Start and stop child processes that end with their parent."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

ACCOUNT = "arrester"
# Files of the service account, if root runs the servers in a private data folder.
SHARED_ROOT = Path("/var/lib/arrester")
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
# Loaded at import: loading it in the forked child could deadlock.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Process(Protocol):
    """A child process, such as `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def service_account() -> pwd.struct_passwd | None:
    """Return the account for servers that do not run as root; None if we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        return _created_account()


def _created_account() -> pwd.struct_passwd:
    command = ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", ACCOUNT]
    # Two simultaneous starts would create the account twice, and the second changes its user id.
    with machine_lock(), suppress(OSError, subprocess.CalledProcessError):
        subprocess.run(command, check=True, capture_output=True)
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        return pwd.getpwnam("nobody")


@contextmanager
def machine_lock() -> Iterator[None]:
    """Let one process of root change what all data folders of the machine share."""
    SHARED_ROOT.mkdir(mode=0o711, exist_ok=True)
    with open(os.open(SHARED_ROOT / "lock", os.O_RDWR | os.O_CREAT, 0o600)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def end_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a `preexec_fn` that makes the kernel send `number` when the parent dies."""

    def set_signal() -> None:
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, int(number))

    return set_signal


def set_name(name: str) -> None:
    """Set the name of this process in `top` and `ps -e`; Linux keeps 15 bytes."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_NAME, name.encode())


def start(
    command: Sequence[str | Path],
    *,
    log: Path,
    stdin: bytes = b"",
    account: pwd.struct_passwd | None = None,
    parent_death_signal: signal.Signals = signal.SIGTERM,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` in its own session, so that Ctrl-C reaches the parent only."""
    with log.open("ab") as output:
        child: subprocess.Popen[bytes] = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent(parent_death_signal),
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            env=env,
            cwd=folder,
        )
    _write_stdin(child.stdin, stdin)
    return child


def _write_stdin(pipe: IO[bytes] | None, data: bytes) -> None:
    if pipe is None:
        return
    try:
        pipe.write(data)
        pipe.close()
    except BrokenPipeError:
        pass  # The child exited already; the caller finds its exit code.


def stop(child: Process, *signals: signal.Signals, seconds: float) -> None:
    """Send `signals` one after the other, wait up to `seconds` after each, then kill."""
    for number in (*signals, signal.SIGKILL):
        if child.poll() is not None:
            return
        if number is signal.SIGKILL:
            os.killpg(child.pid, number)  # with its own children
        else:
            child.send_signal(number)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def last_line(log: Path) -> str:
    """Return the last line of `log` that is not empty."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return "its log is empty"
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
