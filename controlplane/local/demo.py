"""The demo application: whether its pipeline is to run, and how to open it again."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import DatabaseError, close_old_connections

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.errors import NotFound
from arrester.controlplane.domain.state.states import ApplicationStatus

APPLICATION = "flights"
MODULE = "examples.flights"


@dataclass(slots=True)
class Latch:
    """Ask whether the application is open; while PostgreSQL is away the last answer holds."""

    last: bool = True

    def is_open(self) -> bool:
        close_old_connections()
        try:
            state = queries.application(APPLICATION).state
        except NotFound:
            self.last = True
        except DatabaseError:
            pass
        else:
            self.last = state.status is ApplicationStatus.OPEN
        return self.last


def introduce() -> None:
    """Make the demo application known, OPEN, unless it is; a latched one stays so."""
    try:
        queries.application(APPLICATION)
    except NotFound:
        actions.open_application(APPLICATION, actor="make up", reason="the demo begins")


def open_again(*, actor: str) -> None:
    """Open the demo application, latched or new; the supervisor of `up` then starts it."""
    actions.open_application(APPLICATION, actor=actor)
