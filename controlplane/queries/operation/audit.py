"""The audit: acts of people, and dead letters, by time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from django.contrib.auth.models import User
from msgspec import Meta
from msgspec.structs import replace

from arrester.controlplane import models, store
from arrester.controlplane.access.login_attempts import LoginAct
from arrester.controlplane.access.roles import Role
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.paging import Page, task_id
from arrester.controlplane.store.column_values import fit
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    CommandIssued,
    RecordFailed,
    RecordsDeadLettered,
    StoredEvent,
)
from arrester.domain.state.states import CommandStatus

#: The kinds of the audit's filter, and their events.
ACT_KINDS = {
    "commands": ("CommandIssued", "CommandCancelled", "PolicyChanged"),
    "errors": (
        "ErrorGroupResolved",
        "ErrorGroupReopened",
        "ErrorGroupMuted",
        "ErrorGroupUnmuted",
        "ErrorGroupAssigned",
    ),
    "notes": ("NoteAdded",),
    "applications": ("ApplicationOpened", "ApplicationLatched"),
    "tasks": ("TaskResumed", "RecordsDeadLettered", "RecordsRedriven", "DeadLettersDiscarded"),
    "quarantine": ("QuarantineDismissed", "QuarantineRequeued"),
    "accounts": (),
    "logins": (),
    "alerts": (),
    "owners": (),
    "agents": (),
    "reveals": (),
}
#: The beginnings of acts that are in no log; acts on accounts have none.
_BEGINNINGS = {"alerts": "ALERT_", "owners": "OWNER_", "agents": "AGENT_", "reveals": "RECORD_"}
_WITHOUT_LOG = ("accounts", "logins", *_BEGINNINGS)
#: How far from its dead letter the failed record is searched in the log.
MAX_DISTANCE = 1000
Key = tuple[datetime, str, int]


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of people's acts; None means any."""

    application: str | None = None
    actor: str | None = None
    #: One of `queries.ACT_KINDS`.
    kind: str | None = None
    logins: Annotated[bool, Meta(description="Without a kind: whether log-ins are included.")] = (
        True
    )
    since: datetime | None = None
    until: datetime | None = None


class AuditEntryRow(msgspec.Struct, frozen=True, kw_only=True):
    """An act on an account, on alerts or on agents' credentials, or a log-in."""

    id: int
    about: str
    act: str
    detail: str


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """An act of a person: an event of an application's log, or an entry of the audit."""

    at: datetime
    actor: str
    event: StoredEvent | None = None
    entry: AuditEntryRow | None = None
    #: For an issued command: its current status.
    status: CommandStatus | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account, active or not."""

    name: str
    groups: tuple[str, ...]
    superuser: bool
    active: bool
    last_login: datetime | None

    @property
    def role(self) -> Role | None:
        """The role of an active account; None: it has no access."""
        if not self.active:
            return None
        if self.superuser:
            return Role.ADMIN
        return next((each for each in reversed(Role) if each.value in self.groups), None)


def audit(wanted: AuditFilter, *, cursor: str | None = None, limit: int = 50) -> Page[Act]:
    """Return the acts of people, newest first; effects of a command are shown with the command."""
    if wanted.kind is not None and wanted.kind not in ACT_KINDS:
        raise InvalidValue("kind", wanted.kind, ", ".join(ACT_KINDS))
    before = paging.unpack(cursor, tuple[datetime, str, int], of="audit")
    limit = paging.checked(limit)
    acts = [*_in_logs(wanted, before, limit + 1), *_entries(wanted, before, limit + 1)]
    # Stable: at the same moment events come first, as in the cursor's order.
    acts.sort(key=lambda act: act.at, reverse=True)
    page = paging.page(acts[: limit + 1], of="audit", limit=limit, key=_key)
    return replace(page, rows=_with_statuses(page.rows))


def _with_statuses(acts: Sequence[Act]) -> tuple[Act, ...]:
    """Return the acts, commands with their current status: a refused one was issued too."""
    issued = [_issued(act) for act in acts]
    commands = models.Command.objects.filter(id__in=[id for id in issued if id is not None])
    statuses: dict[UUID | None, str] = dict(commands.values_list("id", "status"))
    return tuple(
        replace(act, status=CommandStatus(statuses[id])) if id in statuses else act
        for act, id in zip(acts, issued, strict=True)
    )


def _issued(act: Act) -> UUID | None:
    data = None if act.event is None else act.event.event.data
    return data.command if isinstance(data, CommandIssued) else None


def _key(act: Act) -> tuple[datetime, str, int]:
    if act.event is not None:
        return act.at, act.event.application, act.event.sequence
    return act.at, "", 0 if act.entry is None else act.entry.id


def _in_logs(wanted: AuditFilter, before: Key | None, limit: int) -> list[Act]:
    if wanted.kind in _WITHOUT_LOG:
        return []
    events = store.read_actions(
        store.ActionQuery(
            actor=None if wanted.actor is None else fit(wanted.actor),
            application=wanted.application,
            types=None if wanted.kind is None else ACT_KINDS[wanted.kind],
            since=wanted.since,
            until=wanted.until,
        ),
        before=before,
        limit=limit,
    )
    return [
        Act(at=each.event.occurred_at, actor=getattr(each.event.data, "actor", ""), event=each)
        for each in events
    ]


def _entries(wanted: AuditFilter, before: Key | None, limit: int) -> list[Act]:
    if wanted.kind not in (None, *_WITHOUT_LOG) or wanted.application is not None:
        return []
    # Events are read in their logs.
    entries = models.AuditEntry.objects.filter(sequence=None).order_by("-at", "-id")
    if wanted.kind in _BEGINNINGS:
        entries = entries.filter(act__startswith=_BEGINNINGS[wanted.kind])
    elif wanted.kind == "accounts":
        entries = entries.exclude(act__in=list(LoginAct))
        for beginning in _BEGINNINGS.values():
            entries = entries.exclude(act__startswith=beginning)
    elif wanted.kind is None and not wanted.logins:
        entries = entries.exclude(act__in=list(LoginAct))
    elif wanted.kind == "logins":
        entries = entries.filter(act__in=list(LoginAct))
    if wanted.actor is not None:
        entries = entries.filter(actor=wanted.actor)
    if wanted.since is not None:
        entries = entries.filter(at__gte=wanted.since)
    if wanted.until is not None:
        entries = entries.filter(at__lt=wanted.until)
    if before is not None:
        moment, application, number = before
        # Events precede the entries of the same moment.
        same_moment = entries.filter(at=moment)
        if application == "":
            same_moment = same_moment.filter(id__lt=number)
        entries = entries.filter(at__lt=moment) | same_moment
    return [
        Act(
            at=each.at,
            actor=each.actor,
            entry=AuditEntryRow(id=each.id, about=each.about, act=each.act, detail=each.detail),
        )
        for each in entries[:limit]
    ]


def audit_check() -> models.AuditCheck | None:
    """Return the result of the last periodic check of the audit's chain."""
    return models.AuditCheck.objects.first()


def notes_on_command(command: UUID) -> tuple[StoredEvent, ...]:
    """Return the notes on a command, newest first."""
    return tuple(store.read_notes_on_command(command, limit=100))


def examples(stored: StoredEvent, task: str, *, limit: int = 20) -> tuple[StoredEvent, ...]:
    """Return those of some dead letters that were reported in full, with their bodies.

    They are searched among the task's failures of about that time; the log may have more.
    """
    dead_letters = stored.event.data
    if not isinstance(dead_letters, RecordsDeadLettered):
        return ()
    first, last = dead_letters.first_position, dead_letters.last_position
    by_position: dict[int | None, StoredEvent] = {}
    near = store.read_examples(task_id(task), around=stored.sequence, limit=MAX_DISTANCE)
    for each in near:
        position = getattr(each.event.data, "position", None)
        inside = position is None
        if first is not None and last is not None:
            inside = position is not None and first <= position <= last
        if inside and isinstance(each.event.data, RecordFailed):
            by_position.setdefault(position, each)
    some = list(by_position.values())[:limit]
    return tuple(store.read_one(each.application, each.sequence) for each in some)


def accounts() -> tuple[Account, ...]:
    """Return all accounts by name, with their groups."""
    users = User.objects.order_by("username").prefetch_related("groups")
    return tuple(
        Account(
            name=user.username,
            groups=tuple(sorted(group.name for group in user.groups.all())),
            superuser=user.is_superuser,
            active=user.is_active,
            last_login=user.last_login,
        )
        for user in users
    )


def application_roles() -> tuple[models.ApplicationRole, ...]:
    """Return the roles of accounts on single applications, by application and account."""
    found = models.ApplicationRole.objects.select_related("user")
    return tuple(found.order_by("application", "user__username"))


def tokens(owner: str | None) -> tuple[models.RestToken, ...]:
    """Return the REST tokens of an account, or of all, by account and name."""
    found = models.RestToken.objects.select_related("user").order_by("user__username", "name")
    return tuple(found if owner is None else found.filter(user__username=owner))


def people() -> tuple[str, ...]:
    """Return the names of all accounts, for the filter of the audit."""
    return tuple(User.objects.order_by("username").values_list("username", flat=True)[:500])
