"""Acts on error groups, and notes on groups, tasks and commands."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from arrester.controlplane.actions.transaction import advance, check_text, new_id
from arrester.controlplane.domain.commands.decide import TEXT_MAX
from arrester.controlplane.domain.errors import GroupRefused, InvalidValue, NotFound
from arrester.controlplane.domain.events import Event, NoteAdded
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state import error_groups
from arrester.controlplane.domain.state.error_groups import GroupRequest
from arrester.controlplane.domain.state.states import GroupState
from arrester.controlplane.domain.state.stream_state import StreamState
from arrester.controlplane.views import row_mapping


def act_on_group(application: str, requested: GroupRequest) -> GroupState:
    """Resolve, reopen, mute or unmute an error group; a repeated id changes nothing.

    Raises GroupRefused (with `state` and `sequence`) if its state forbids it, InvalidValue for a
    mute without an end, NotFound; then nothing is logged.
    """
    check_text(actor=requested.actor, reason=requested.reason)

    def rule(state: StreamState) -> list[Event]:
        group = _group(state, requested.fingerprint)
        forbidden = error_groups.refusal(requested.act, group.status)
        if forbidden is not None:
            raise GroupRefused(forbidden, state=group.status, sequence=group.status_sequence)
        now = datetime.now(UTC)
        return [Event(occurred_at=now, data=error_groups.decide(requested, now=now))]

    state = advance(
        application,
        rule,
        group=requested.fingerprint,
        id=requested.id,
        said=lambda then: error_groups.decide(requested, now=then),
    )
    return _group(state, requested.fingerprint)


def note_on_group(
    application: str, fingerprint: str, *, actor: str, text: str, id: UUID | None = None
) -> GroupState:
    """Add a note to an error group; raise NotFound if there is none."""

    data = NoteAdded(actor=actor, text=text, fingerprint=fingerprint)

    def rule(state: StreamState) -> list[Event]:
        _group(state, fingerprint)
        return [Event(occurred_at=datetime.now(UTC), data=data)]

    _check_note(actor, text)
    state = advance(application, rule, group=fingerprint, id=id or new_id(), said=lambda _: data)
    return _group(state, fingerprint)


def note_on_task(task: TaskId, *, actor: str, text: str, id: UUID | None = None) -> None:
    """Add a note to a task, shown in its history."""
    _check_note(actor, text)
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
    _check_note(actor, text)
    found = row_mapping.COMMANDS.load("id = %s", [command])
    if not found:
        raise NotFound(f"there is no command {command}")
    _note(found[0].application, NoteAdded(actor=actor, text=text, command=command), id)


def _check_note(actor: str, text: str) -> None:
    check_text(actor=actor, text=text)
    if not text.strip():
        raise InvalidValue("text", text, f"a text of 1 to {TEXT_MAX} characters")


def _note(application: str, data: NoteAdded, id: UUID | None) -> None:
    advance(
        application,
        lambda _: [Event(occurred_at=datetime.now(UTC), data=data)],
        id=id or new_id(),
        said=lambda _: data,
    )


def _group(state: StreamState, fingerprint: str) -> GroupState:
    found = state.groups.get(fingerprint)
    if found is None:
        raise NotFound(f"there is no error group {state.application.name} {fingerprint!r}")
    return found
