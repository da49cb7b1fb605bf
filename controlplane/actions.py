"""Every write by people and by the clock: one function each, all on the road of `_advance`.

Each action that a person takes is a command with an id: giving the id again changes nothing and
answers alike. A wish that the state forbids is in the log as CommandIssued and CommandRefused,
and raises CommandRefused (with `state` and `sequence`); one that is no wish (no reason where one
is required) raises InvalidValue and leaves no trace; what does not exist raises NotFound.
None of them needs Redis: what is committed is relayed later.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from controlplane.domain.decide import Wish
from controlplane.domain.states import ApplicationState, CommandState


def resume_task(
    digest: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Ask for a PAUSED task to go on with the record that failed."""
    raise NotImplementedError


def skip_record(
    digest: str, *, actor: str, reason: str, command: UUID | None = None
) -> CommandState:
    """Ask for a PAUSED task to go on past the record that failed; it becomes a dead letter."""
    raise NotImplementedError


def shut_down_application(
    application: str, *, actor: str, reason: str, command: UUID | None = None
) -> CommandState:
    """Latch the application and ask all its instances to end."""
    raise NotImplementedError


def start_application(
    application: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Open a LATCHED application: its instances may run again (somebody has to start them)."""
    raise NotImplementedError


def issue_command(application: str, wish: Wish) -> CommandState:
    """Issue any command: what the four above do."""
    raise NotImplementedError


def open_application(
    application: str, *, actor: str, reason: str | None = None
) -> ApplicationState:
    """Make sure that the application exists and is OPEN; opening an open one changes nothing."""
    raise NotImplementedError


def watch(*, now: datetime | None = None) -> int:
    """Tell what time made true: instances lost or found, commands expired. Return how much."""
    raise NotImplementedError
