"""Acts on one or many error groups, and notes on groups, tasks and commands."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from django.db import DataError
from msgspec import Meta
from msgspec.structs import replace

from arrester.controlplane import access
from arrester.controlplane.actions.transaction import advance, check_text, new_id
from arrester.controlplane.views import row_mapping
from arrester.domain.commands.request import TEXT_MAX
from arrester.domain.errors import GroupActForbidden, InvalidValue, NotFound
from arrester.domain.events import Event, NoteAdded
from arrester.domain.identity import uuids
from arrester.domain.identity.names import TaskId
from arrester.domain.state import error_groups
from arrester.domain.state.error_groups import GroupRequest
from arrester.domain.state.states import GroupState
from arrester.domain.state.stream_state import StreamState

#: The most error groups of one act.
MAX_GROUPS = 100


class ActedOn(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one error group of many."""

    application: str
    fingerprint: str
    #: The changed group; None if its state forbids the act, or it does not exist.
    group: GroupState | None
    refused: Annotated[
        str, Meta(description="The reason of a refusal; empty if there is none.")
    ] = ""


def act_on_group(application: str, requested: GroupRequest) -> GroupState:
    """Resolve, reopen, mute, unmute or assign an error group; a repeated id changes nothing.

    Raises GroupActForbidden (with `state` and `sequence`) if its state forbids it, InvalidValue for
    a mute without an end, NotFound; then nothing is logged.
    """
    check_text(actor=requested.actor, reason=requested.reason, assignee=requested.assignee)

    def rule(state: StreamState) -> list[Event]:
        group = _group(state, requested.fingerprint)
        forbidden = error_groups.refusal(requested.act, group.status)
        if forbidden is not None:
            raise GroupActForbidden(forbidden, state=group.status, sequence=group.status_sequence)
        now = datetime.now(UTC)
        return [Event(occurred_at=now, data=error_groups.decide(requested, now=now))]

    state = advance(
        application,
        rule,
        group=requested.fingerprint,
        id=requested.id,
        event_at=lambda then: error_groups.decide(requested, now=then),
    )
    return _group(state, requested.fingerprint)


def act_on_groups(groups: Sequence[tuple[str, str]], requested: GroupRequest) -> list[ActedOn]:
    """Act on error groups, each named by application and fingerprint, as `act_on_group` does.

    Each gets a request with its own fingerprint, whose id is derived from that of `requested` and
    the group: a repetition changes nothing. Raises InvalidValue for no group, too many, or a mute
    without an end, NotPermitted for an application that the person may only view, before anything
    is done; a fault of one group is in its result.
    """
    keys = list(dict.fromkeys(groups))
    if not 1 <= len(keys) <= MAX_GROUPS:
        raise InvalidValue("groups", len(keys), f"1 to {MAX_GROUPS} error groups at once")
    check_text(actor=requested.actor, reason=requested.reason, assignee=requested.assignee)
    error_groups.decide(requested, now=datetime.now(UTC))
    for application in sorted({application for application, _ in keys}):
        with suppress(NotFound):
            access.require(application)
    return [_act(application, fingerprint, requested) for application, fingerprint in keys]


def _act(application: str, fingerprint: str, requested: GroupRequest) -> ActedOn:
    id = uuids.part_of(requested.id, f"{application}/{fingerprint}")
    try:
        group = act_on_group(application, replace(requested, id=id, fingerprint=fingerprint))
    except (GroupActForbidden, NotFound, InvalidValue, DataError) as fault:
        return ActedOn(
            application=application, fingerprint=fingerprint, group=None, refused=str(fault)
        )
    return ActedOn(application=application, fingerprint=fingerprint, group=group)


def note_on_group(
    application: str, fingerprint: str, *, actor: str, text: str, id: UUID | None = None
) -> GroupState:
    """Add a note to an error group; raise NotFound if there is none."""
    data = NoteAdded(actor=actor, text=text, fingerprint=fingerprint)
    return _group(_note(application, data, id), fingerprint)


def note_on_task(task: TaskId, *, actor: str, text: str, id: UUID | None = None) -> None:
    """Add a note to a task, shown in its history."""
    data = NoteAdded(
        actor=actor,
        text=text,
        pipeline=task.pipeline,
        checkpoint=task.checkpoint,
        task=task.key,
    )
    _note(task.application, data, id)


def note_on_command(command: UUID, *, actor: str, text: str, id: UUID | None = None) -> None:
    """Add a note to a command; raise NotFound if there is none."""
    commands = row_mapping.COMMANDS.load("id = %s", [command])
    if not commands:
        raise NotFound(f"there is no command {command}")
    _note(commands[0].application, NoteAdded(actor=actor, text=text, command=command), id)


def _note(application: str, data: NoteAdded, id: UUID | None) -> StreamState:
    check_text(actor=data.actor, text=data.text)
    if not data.text.strip():
        raise InvalidValue("text", data.text, f"a text of 1 to {TEXT_MAX} characters")

    def rule(state: StreamState) -> list[Event]:
        if data.fingerprint is not None:
            _group(state, data.fingerprint)
        return [Event(occurred_at=datetime.now(UTC), data=data)]

    return advance(
        application, rule, group=data.fingerprint, id=id or new_id(), event_at=lambda _: data
    )


def _group(state: StreamState, fingerprint: str) -> GroupState:
    group = state.groups.get(fingerprint)
    if group is None:
        raise NotFound(f"there is no error group {state.application.name} {fingerprint!r}")
    return group
