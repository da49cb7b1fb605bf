"""An operator who clicks at random, twice now and then, while anything may be away."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID, uuid4

from tests.chaos.product import Product
from tests.e2e.stack import eventually

_FINAL = {"APPLIED", "REFUSED", "EXPIRED", "CANCELLED"}


@dataclass(slots=True, kw_only=True)
class Operator:
    """Issues commands, and remembers those that the server accepted."""

    product: Product
    chance: Random
    accepted: set[str] = field(default_factory=set)
    double_clicks: int = 0
    failed_requests: int = 0
    violations: list[str] = field(default_factory=list)

    def act(self) -> None:
        """Issue a command about a random task."""
        try:
            tasks = self.product.all_of("/api/v1/tasks")
        except (OSError, ValueError):
            self.failed_requests += 1
            return
        if not tasks:
            return
        paused = [each for each in tasks if each["status"] == "PAUSED"]
        kind = self.chance.choice(["RESUME_TASK", "SKIP_RECORD"] if paused else ["PAUSE_TASK"])
        task = self.chance.choice(paused or tasks)
        self._issue(kind, task["id"], twice=self.chance.random() < 0.3)

    def resume_all(self) -> bool:
        """Resume each paused task; return whether no task holds records."""
        try:
            tasks = self.product.all_of("/api/v1/tasks")
        except (OSError, ValueError):
            return False
        for each in tasks:
            if each["status"] == "PAUSED":
                self._issue("RESUME_TASK", each["id"], twice=False)
        return all(each["status"] == "RUNNING" and not each["held"] for each in tasks)

    def _issue(self, kind: str, task: str, *, twice: bool) -> None:
        body = {"id": str(uuid4()), "kind": kind, "task": task, "reason": "chaos"}
        answers: list[tuple[int, Any]] = []

        def click() -> None:
            try:
                answers.append(self.product.post("/api/v1/commands", body))
            except (OSError, ValueError):
                self.failed_requests += 1

        clicks = [threading.Thread(target=click) for _ in range(1 + twice)]
        self.double_clicks += twice
        for each in clicks:
            each.start()
        for each in clicks:
            each.join()
        for status, command in answers:
            if status in (200, 201, 202):
                self.accepted.add(command["id"])
                if UUID(command["id"]) != UUID(body["id"]):
                    self.violations.append(f"command {body['id']} was answered as {command['id']}")

    def check(self, *, seconds: float) -> list[str]:
        """Return what is wrong with the accepted commands at the end."""

        def open_commands() -> list[str]:
            found = (self.product.get(f"/api/v1/commands/{id}") for id in sorted(self.accepted))
            return [each["id"] for each in found if each["status"] not in _FINAL]

        try:
            eventually(
                lambda: not open_commands(), what="all commands have an answer", seconds=seconds
            )
        except AssertionError:
            self.violations.append(f"commands without an answer: {open_commands()}")
        return self.violations
