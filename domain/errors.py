"""The exceptions of Arrester. Each docstring states what the caller should do."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

#: Longer values are cut in messages.
_VALUE_CHARACTERS = 300


class ArresterError(Exception):
    """Base of all exceptions of Arrester; its message is written for people."""


class InvalidValue(ArresterError):
    """A name, setting or argument is not allowed; correct it and call again.

    `reason` is the sentence of a parser, which explains more than the value.
    """

    def __init__(
        self,
        name: str,
        value: object,
        allowed: str,
        *,
        read_from: str | None = None,
        reason: str | None = None,
    ) -> None:
        where = "" if read_from is None else f" (read from {read_from})"
        refusal = f"{_shown(value)} is not allowed{where}; allowed: {allowed}"
        super().__init__(f"{name}: {refusal if reason is None else reason}")
        self.name = name
        self.value = value
        self.allowed = allowed


class IdReused(InvalidValue):
    """The id of an act came with another request before; use a new id for another act."""


class InvalidConfiguration(InvalidValue):
    """One or more settings are wrong; `faults` has them all. Correct them and start again."""

    def __init__(self, faults: list[InvalidValue]) -> None:
        ArresterError.__init__(self, "\n".join(str(fault) for fault in faults))
        self.name, self.value, self.allowed = faults[0].name, faults[0].value, faults[0].allowed
        self.faults = faults


def _shown(value: object) -> str:
    """Return a value for a message, as one line; an object may fail to represent itself."""
    try:
        if isinstance(value, datetime):
            value = value.isoformat().replace("+00:00", "Z")
        text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}…"


class MalformedBatch(ArresterError):
    """The bytes are not a batch of events; quarantine them, do not read them again."""


class PendingCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command in progress that forbids another one."""

    id: UUID
    kind: str
    actor: str
    issued_at: datetime


class CommandForbidden(ArresterError):
    """The state forbids this command; nothing was changed.

    `command` is the id of the refused one, if it is in the log; `pending` is the command in
    progress that forbids it, if one does.
    """

    def __init__(
        self,
        reason: str,
        *,
        state: str,
        sequence: int = 0,
        command: UUID | None = None,
        pending: PendingCommand | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.state = state
        self.sequence = sequence
        self.command = command
        self.pending = pending


class GroupActForbidden(ArresterError):
    """The error group's state forbids this; nothing was changed."""

    def __init__(self, reason: str, *, state: str, sequence: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.state = state
        self.sequence = sequence


class RedisUnavailable(ArresterError):
    """Redis cannot be reached or refuses; try again when it answers."""


class LockedOut(ArresterError):
    """Too many wrong passwords; no password is checked until a time."""

    def __init__(self, until: datetime) -> None:
        super().__init__(
            "too many wrong passwords for this user name or from this address. A log-in is possible"
            f" again at {until:%H:%M:%S} UTC, or when an admin unlocks it on Settings"
        )
        self.until = until


class NotFound(ArresterError):
    """There is no such thing, or not any more; the message names it."""


class NotPermitted(ArresterError):
    """The role on an application does not suffice; an admin of it can grant a greater one.

    Without an application the role must be one on all of them.
    """

    def __init__(self, application: str | None, role: str) -> None:
        on = "all applications" if application is None else f"the application {application!r}"
        super().__init__(f"requires the role {role} on {on}")
        self.application = application
        self.role = role


class BeforeHistory(ArresterError):
    """The log does not reach back so far; its oldest state is as of `moment`, a time, and as of
    the log position `position`."""

    def __init__(self, application: str, *, position: int, moment: datetime | None) -> None:
        since = "" if moment is None else f", {moment:%Y-%m-%d %H:%M:%S} UTC"
        super().__init__(f"the history of {application} begins at @{position}{since}")
        self.application = application
        self.position = position
        self.moment = moment


class NotVerified(ArresterError):
    """The log and the views differ; rebuild the application, then try again."""

    def __init__(self, application: str, position: int) -> None:
        super().__init__(
            f"{application} @ {position}: the log gives other states than were shown;"
            f" nothing was dropped. Look with `arrester rebuild --verify {application}`,"
            f" then `arrester rebuild {application}`"
        )
        self.application = application
        self.position = position


class BrokenState(ArresterError):
    """This version cannot read a row of a view; nothing was changed. Repair it with a server of
    the version that wrote it, or with `arrester rebuild`, then try again."""

    def __init__(self, view: str, row: str, reason: str) -> None:
        super().__init__(
            f"a row of {view} cannot be read: {reason}; a server as new as who wrote it can,"
            f" else `arrester rebuild` derives it again: {row[:200]}"
        )


class StartRefused(ArresterError):
    """The application is LATCHED after a shutdown; start it from the dashboard, then run again."""
