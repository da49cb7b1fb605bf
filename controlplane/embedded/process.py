"""Child processes that end with us, and the unprivileged account for those that refuse root."""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

ACCOUNT = "arrester"
PR_SET_PDEATHSIG = 1
# Loaded here, not in the forked child, where loading could dead-lock.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def service_account() -> pwd.struct_passwd | None:
    """Return the account for servers that refuse to run as root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", ACCOUNT]
    try:
        subprocess.run(command, check=True, capture_output=True)
        return pwd.getpwnam(ACCOUNT)
    except (OSError, subprocess.CalledProcessError, KeyError):
        return pwd.getpwnam("nobody")


def end_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return what a child has to run first so that it gets `number` when its parent dies."""

    def ask_kernel() -> None:
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, int(number))

    return ask_kernel


def start(
    command: Sequence[str | Path],
    *,
    log: Path,
    stdin: bytes = b"",
    account: pwd.struct_passwd | None = None,
    when_parent_dies: signal.Signals = signal.SIGTERM,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own: Ctrl-C reaches us, and we decide the order."""
    with log.open("ab") as output:
        child: subprocess.Popen[bytes] = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent(when_parent_dies),
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            env=env,
            cwd=folder,
        )
    _feed(child.stdin, stdin)
    return child


def _feed(pipe: IO[bytes] | None, data: bytes) -> None:
    if pipe is None:
        return
    try:
        pipe.write(data)
        pipe.close()
    except BrokenPipeError:
        pass  # it has ended already: whoever waits for it will see that


def stop(child: subprocess.Popen[bytes], *signals: signal.Signals, seconds: float) -> None:
    """Send `signals` one after the other, each given `seconds` to work, then kill."""
    for number in (*signals, signal.SIGKILL):
        if child.poll() is not None:
            return
        if number is signal.SIGKILL:
            os.killpg(child.pid, number)  # with what it started itself
        else:
            child.send_signal(number)
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def last_line(log: Path) -> str:
    """Return the last line of `log` that says something."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return "its log is empty"
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
