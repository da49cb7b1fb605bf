"""How much the agents of a simulated fleet send."""

from __future__ import annotations

from collections.abc import Sequence

#: The time between two batches of an agent.
PUT_SECONDS = 1.0
#: A burst: applications that send this many times as much.
BURST = 10


def application(number: int) -> str:
    """Return the name of an application."""
    return f"application-{number:03d}"


class Load:
    """The events per second of each agent, and the applications with a burst."""

    def __init__(self) -> None:
        self._rate, self._burst = 0.0, frozenset[str]()

    def set(self, line: str) -> None:
        """Change it by a line of the input."""
        rate, *burst = line.split()
        self._rate, self._burst = float(rate), frozenset(burst)

    def of(self, application: str) -> float:
        """Return the events of the next batch of an agent."""
        return self._rate * PUT_SECONDS * (BURST if application in self._burst else 1)


def line(rate: float, burst: Sequence[str] = ()) -> str:
    """Return the line that sets a rate of each agent."""
    return " ".join([f"{rate:.4f}", *burst])
