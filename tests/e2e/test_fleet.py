"""Several driver processes of one application: one checkpoint, and one end for all of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1800)]


class Fleet:
    """Drivers, each with an input of its own."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.folder = stack.folder
        self._files = 0

    def launch(self, name: str, *checkpoints: str) -> None:
        for each in checkpoints:
            if not (self.folder / f"in-{each}").exists():
                self.add(each, 0, "x")
        command = [sys.executable, "-m", "tests.e2e.fleet", str(self.folder)]
        self.stack.run(name, [*command, name, "SHUTDOWN_APPLICATION", *checkpoints])

    def add(self, checkpoint: str, position: int, value: str) -> None:
        place = self.folder / f"in-{checkpoint}"
        place.mkdir(exist_ok=True)
        self._files += 1
        draft = place / f".{self._files}.json"
        draft.write_text(json.dumps({"task": "a", "position": position, "value": value}) + "\n")
        draft.rename(place / f"{self._files:03d}.json")

    def written(self, name: str, checkpoint: str) -> list[int]:
        parts = Path(self.folder / f"out-{name}" / checkpoint).glob("part-*.json")
        return sorted(
            json.loads(line)["position"] for part in parts for line in part.read_text().splitlines()
        )

    def ended(self, name: str) -> dict[str, Any]:
        """Return what the driver reports of its end, once it has ended by itself."""

        def report() -> dict[str, Any]:
            lines = (self.folder / f"{name}.log").read_text().splitlines()
            found = [line for line in lines if line.startswith('{"name"')]
            return json.loads(found[-1]) if found else {}

        return eventually(report, what=f"{name} ends")

    def shared(self) -> dict[str, Any]:
        """Return the newest run at the shared checkpoint, as the server sees it."""
        found: list[dict[str, Any]] = self.stack.get("/api/v1/applications/fleet/runs")["results"]
        return next((each for each in found if each["pipeline"] == "lines-shared"), {})


@pytest.mark.long
def test_a_newer_driver_takes_a_checkpoint_over_and_one_failure_ends_them_all(
    stack: Stack,
) -> None:
    fleet = Fleet(stack)
    fleet.launch("first", "shared")
    eventually(lambda: fleet.written("first", "shared") == [0], what="the first driver works")
    fleet.launch("second", "shared", "other")
    fleet.launch("third", "own", "beside")
    eventually(lambda: fleet.written("third", "own") == [0], what="the third driver works")
    eventually(lambda: fleet.written("third", "beside") == [0], what="its other pipeline works")

    # The older run ends by itself: no handler is called, no run replaces it, no state changes.
    end = fleet.ended("first")
    assert (end["ending"], end["asked"]) == ("SUPERSEDED", [])
    newest = eventually(
        lambda: fleet.shared() if fleet.shared().get("epoch") == 2 else {},
        what="the newer run is known",
    )
    assert newest["status"] == "RUNNING"
    fleet.add("shared", 1, "x")
    eventually(lambda: 1 in fleet.written("second", "shared"), what="the second driver works")
    eventually(lambda: fleet.written("second", "other") == [0], what="its other pipeline works")
    assert (fleet.shared()["epoch"], fleet.shared()["status"]) == (2, "RUNNING")

    fleet.add("own", 1, "bad")
    third, second = fleet.ended("third"), fleet.ended("second")
    assert (third["ending"], third["state"], len(third["asked"])) == ("FAILED", "ERROR", 1)
    assert (second["ending"], second["state"], second["asked"]) == ("SHUT_DOWN", "ERROR", [])
    # All pipelines of all of them.
    assert (third["running"], second["running"]) == (0, 0)
    application = stack.get("/api/v1/applications/fleet")
    assert application["status"] == "LATCHED"
    [command] = [
        each for each in stack.all_of("/api/v1/commands") if each["application"] == "fleet"
    ]
    assert (command["kind"], command["status"]) == ("SHUT_DOWN_APPLICATION", "APPLIED")

    fleet.launch("late", "late")
    assert "fleet is LATCHED" in fleet.ended("late")["latched"]
