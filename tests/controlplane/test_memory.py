"""The memory of a worker and of a web process, for any entries that an agent can send."""

from __future__ import annotations

import subprocess
import sys

import pytest
from redis import Redis

from tests import histories
from tests.controlplane import streams, worst_entries
from tests.dashboard.accounts import make_superuser
from tests.services import REPOSITORY

pytestmark = pytest.mark.usefixtures("fresh_database")
#: Above an idle process.
MOST_BYTES = 300 * 2**20
QUIET = "quiet"


def growth(*arguments: str) -> dict[str, int]:
    """Return by how many bytes the memory of a process grew with each of its arguments."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.controlplane.measured_memory", *arguments],
        cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True, timeout=300,
    )  # fmt: skip
    lines = [line.rpartition(" ") for line in done.stdout.splitlines()]
    return {name: int(size) for name, _, size in lines}


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("RecordFailed", "FlowMeasured", *worst_entries.PARTS), id="some"),
        pytest.param(worst_entries.KINDS, id="all", marks=pytest.mark.long),
    ],
)
def test_the_largest_entries_of_each_kind_take_little_memory(
    redis: Redis, kinds: tuple[str, ...]
) -> None:
    names = {kind: f"noisy-{number}" for number, kind in enumerate(kinds)}
    for kind, name in names.items():
        for fields in worst_entries.entries(kind):
            streams.put(redis, fields, application=name)
    for name in (QUIET, *names.values()):
        streams.send(redis, [histories.failed(1)], application=name)
    grown = growth("fold", QUIET, *names.values())
    assert grown["total"] <= MOST_BYTES, sorted(grown.items(), key=lambda each: -each[1])[:5]
    # Each application also has an event of ordinary size.
    for name in names.values():
        assert streams.log(name)[-1].event.type == "RecordFailed"

    make_superuser("ada")
    pages = [
        *(
            "/api/v1/feed?last=500&limit=500",
            "/api/v1/quarantine?limit=500",
            "/quarantine",
            "/errors",
        ),
        *(f"/applications/{name}" for name in names.values()),
        *(f"/errors/{names[kind]}/{'a' * 200}" for kind in ("bodies", "nested bodies")),
    ]
    grown = growth("get", "/", *pages)
    assert grown["total"] <= MOST_BYTES, sorted(grown.items(), key=lambda each: -each[1])[:5]
