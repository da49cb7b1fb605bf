"""The disk space of a data folder, if this machine has it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from arrester.controlplane.queries.operation.installation.finding import (
    Finding,
    error,
    ok,
    warning,
)

_GIGABYTE = 10**9
#: Less is an error; a smaller share is a warning.
_LEAST_BYTES, _LEAST_SHARE = _GIGABYTE, 0.1
_ADVICE = "Free space, set ARRESTER_RETENTION_GB, or lower ARRESTER_RETENTION_DAYS."


def is_local(host: str | None) -> bool:
    """Whether a server of this host has its files on this machine, unless it is in a container."""
    return not host or host.startswith("/") or host in ("localhost", "127.0.0.1", "::1")


def space(check: str, folder: str | None) -> Iterator[Finding]:
    """Report the free space of a folder; None is unknown."""
    try:
        usage = None if folder is None else shutil.disk_usage(Path(folder))
    except OSError:
        usage = None
    if usage is None:
        yield ok(check, "unknown: the data folder is not visible from the web process")
        return
    value = f"{usage.free / _GIGABYTE:,.1f} of {usage.total / _GIGABYTE:,.1f} GB free"
    if usage.free < _LEAST_BYTES:
        yield error(check, value, _ADVICE)
    elif usage.free < _LEAST_SHARE * usage.total:
        yield warning(check, value, _ADVICE)
    else:
        yield ok(check, value)
