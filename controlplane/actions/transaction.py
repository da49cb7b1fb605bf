"""The path of writes that depend on states: lock, load, decide, append, project, relay.

The quarantine appends batches of agents, and accounts are in no log: both have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from django.db import transaction

from arrester.controlplane import access, audit_chain, command_traces, store
from arrester.controlplane.outbound import command_outbox
from arrester.controlplane.views import projections
from arrester.domain.commands.request import TEXT_MAX, is_text
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Event, EventData
from arrester.domain.identity import uuids
from arrester.domain.identity.names import TaskId
from arrester.domain.state.stream_state import StreamState

Rule = Callable[[StreamState], list[Event]]


@access.acts
@transaction.atomic(durable=True)
def advance(
    application: str,
    rule: Rule,
    *,
    tasks: Collection[TaskId] = (),
    commands: Collection[UUID] = (),
    pipelines: Collection[str] = (),
    group: str | None = None,
    id: UUID | None = None,
    event_at: Callable[[datetime], EventData] | None = None,
) -> StreamState:
    """Lock the stream, load the states of the rules, append the events of `rule` and project them.

    Return the resulting states; agents are notified after the commit. An act with a known `id` is
    not repeated. With `event_at`, the act's event at a time, raise InvalidValue if another act has
    that id. Raises NotPermitted or NotFound if the person of the request may not act on the
    application.
    """
    began = datetime.now(UTC)
    stream = store.lock(application)
    state = projections.current_states(
        application, tasks=tasks, commands=commands, pipelines=pipelines, group=group
    )
    if id is not None and store.seen_batches(application, [id]):
        for done in store.read_batch(application, id):
            if event_at is not None and done.event.data != event_at(done.event.occurred_at):
                raise InvalidValue("id", str(id), "an id that no other act has")
        return state
    events = rule(state)
    if not events:
        return state
    now = datetime.now(UTC)
    batch = store.NewBatch(id=id or new_id(), events=events)
    if id is not None:
        store.record_batches(stream, [batch], received_at=now)
    _, stored = store.append(stream, [batch], received_at=now)
    projections.project(application, stored)
    transaction.on_commit(partial(command_outbox.try_relay, application))
    # The fold changes the state.
    before = dict(state.tasks)
    state = state.fold(stored)
    trace = partial(
        command_traces.acted, stored, commands=state.commands, tasks=before, began=began
    )
    transaction.on_commit(trace, robust=True)
    audit_chain.append_events(stored)
    return state


def new_id() -> UUID:
    """Return a new id."""
    return uuids.uuid7(datetime.now(UTC))


def check_text(**texts: str | None) -> None:
    """Raise InvalidValue for a text that the log cannot encode."""
    for name, text in texts.items():
        if text is not None and (len(text) > TEXT_MAX or not is_text(text)):
            raise InvalidValue(name, text[:50], f"a text of at most {TEXT_MAX} characters")
