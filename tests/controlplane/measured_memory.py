"""A worker or a web process that does one thing, and reports by how many bytes its memory grew."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402  # Django has to be ready first
from django.test import Client  # noqa: E402

from arrester.controlplane.ingest import fold_stream  # noqa: E402
from arrester.controlplane.redis import event_streams, redis_client  # noqa: E402
from arrester.domain.identity import redis_keys  # noqa: E402


def peak() -> int:
    """Return the most memory that this process has had, in bytes.

    Not from getrusage: its value begins with that of the parent process.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024


def fold(application: str) -> None:
    """Fold all entries of an application."""
    while fold_stream.fold_stream(application).more:
        pass
    ends = event_streams.read_ends(redis_client.client(), redis_keys.events(application))
    assert ends.length == 0


def get(path: str) -> None:
    """Request a page as the superuser `ada`."""
    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get(username="ada"))
    response = client.get(path)
    assert response.status_code == 200, (path, response.status_code, response.content[:500])


if __name__ == "__main__":
    what, first, *arguments = sys.argv[1:]
    works: dict[str, Callable[[str], None]] = {"fold": fold, "get": get}
    work = works[what]
    # What is loaded and cached by the first of them is there when the server is idle.
    work(first)
    idle = peak()
    for each in arguments:
        before = peak()
        work(each)
        print(f"{each} {peak() - before}", flush=True)
    print(f"total {peak() - idle}", flush=True)
