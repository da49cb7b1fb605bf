"""What the Python of an executor has. It imports nothing that may be missing there."""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple


class Environment(NamedTuple):
    """A Python on a host."""

    host: str
    executable: str
    version: str
    #: The version of each module: empty if it is unknown, None if the module is missing.
    modules: tuple[tuple[str, str | None], ...]


def environment(modules: Sequence[str]) -> Environment:
    """Return what this Python has. No module is imported: some take seconds."""
    found = tuple((name, _version(name)) for name in modules)
    return Environment(socket.gethostname(), sys.executable, platform.python_version(), found)


def environments(modules: Sequence[str], _: Iterable[int]) -> Iterator[tuple[object, ...]]:
    """Return what the Python of a task has, as a plain tuple."""
    yield tuple(environment(modules))


def _version(name: str) -> str | None:
    try:
        if find_spec(name) is None:
            return None
    except (ImportError, ValueError):  # a module without a spec is there
        return ""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # it is no package's, or that has another name
        return ""
