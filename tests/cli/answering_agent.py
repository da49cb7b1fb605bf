"""An agent that answers commands at once, in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event, Thread

from django.db import connections
from msgspec import UNSET

from arrester.controlplane import actions, queries
from arrester.controlplane.views import redrive_progress
from arrester.domain.commands.kinds import TESTS
from arrester.domain.events import (
    CommandApplied,
    CommandKind,
    RecordsHeld,
    RecordsRedriven,
    ResumeHow,
)
from arrester.domain.identity.dead_letter_ids import split_ids
from arrester.domain.state.states import CommandState, if_set
from arrester.domain.wire import dead_letter_columns
from tests.dashboard.story import NA, Story
from tests.patience import PATIENCE_SECONDS

_RESUMES = {
    CommandKind.RESUME_TASK: ResumeHow.RETRY,
    CommandKind.RESTART_TASK: ResumeHow.RETRY,
    CommandKind.SKIP_RECORD: ResumeHow.SKIP,
}


#: The reasons of commands that the agent does not apply, and after which the record fails again.
IGNORED, FAILING = "no agent", "not repaired"
#: Seconds from the answer to a command until its task has processed its held records.
_PROCESSING_SECONDS = 0.4


@contextmanager
def answering(story: Story) -> Iterator[None]:
    """Apply the commands for the application of the story, and process held records.

    Rollouts advance, too, as a worker does it.
    """
    end = Event()
    thread = Thread(target=_answer, args=(story, end))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(PATIENCE_SECONDS)


def _answer(story: Story, end: Event) -> None:
    try:
        while not end.wait(0.05):
            page = queries.commands(story.application, open=True)
            for command in page.rows:
                if command.rollout is not UNSET:
                    actions.advance_rollout(command, now=datetime.now(UTC))
                elif command.redrive is not UNSET:
                    actions.advance_redrive(command, now=datetime.now(UTC))
                elif command.reason != IGNORED:
                    _apply(story, command, end)
    finally:
        connections.close_all()


def _apply(story: Story, command: CommandState, end: Event) -> None:
    story.fetches(command.id)
    key = "" if command.task is None else command.task.key or ""
    if command.kind in _RESUMES:
        story.resumes(key, command.id, how=_RESUMES[command.kind], held=1)
        end.wait(_PROCESSING_SECONDS)
        if command.reason == FAILING:
            story.pauses(key, cause=NA)
        else:
            story.report(RecordsHeld(task=key, held=0))
    elif command.kind is CommandKind.REDRIVE_RECORDS:
        _redrives(story, command)
    elif command.kind in TESTS:
        fails = "bad" in (if_set(command.patch) or "")
        story.tests(command.id, rows=2, failure=NA if fails else None)
    elif command.kind is CommandKind.PAUSE_TASK:
        story.pauses_by_hand(key, command.id)
    elif command.kind is CommandKind.PAUSE_PIPELINE:
        story.pauses_pipeline(command.id)
    elif command.kind is CommandKind.RESUME_PIPELINE:
        story.resumes_pipeline(command.id)
    elif command.kind is CommandKind.SHUT_DOWN_APPLICATION:
        story.stops(command=command.id)


def _redrives(story: Story, command: CommandState) -> None:
    """Process the dead letters of a command, which are of one task."""
    chosen = redrive_progress.chosen(command)
    assert chosen is not None and command.part_of is not UNSET
    ids = split_ids(chosen.ids)
    task = queries.dead_letter(story.application, ids[0].hex()).task
    redriven = RecordsRedriven(
        task=task.key,
        count=len(ids),
        first_position=None,
        last_position=None,
        redrive=command.part_of,
        records=dead_letter_columns.pack_ids(positions=None, ids=[id.hex() for id in ids]),
    )
    story.report(redriven)
    story.report(CommandApplied(command=command.id))
    story.report(RecordsHeld(task=task.key, held=0))
