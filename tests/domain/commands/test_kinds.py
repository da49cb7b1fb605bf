from __future__ import annotations

import re
from collections import Counter

import pytest

from arrester.domain.commands.kinds import (
    KINDS,
    ROLLOUTS,
    TASK_KINDS,
    AppliedBy,
    Subject,
    skips_records,
)
from arrester.domain.commands.recipients import instance_of_run, no_instance
from arrester.domain.events import CommandKind
from tests.services import REPOSITORY

PRODUCT = ("agents", "cli", "controlplane", "dashboard", "domain")
#: The enumeration, the row, the page of a task and the command line name a new kind: see
#: docs/how-to/add-a-command.md.
MOST_FILES = 4
#: The server and agents issue these by themselves, or have cases for their subjects or fields.
MORE_FILES = {
    CommandKind.RESUME_TASK: 7,
    CommandKind.DISMISS_TASK: 6,
    CommandKind.SET_POLICY: 5,
    CommandKind.PAUSE_TASK: 6,
    CommandKind.TEST_RECORD: 5,
    CommandKind.TEST_DEAD_LETTER: 5,
    CommandKind.RESTART_PIPELINE: 7,
    CommandKind.PAUSE_PIPELINE: 7,
    CommandKind.RESUME_PIPELINE: 7,
    CommandKind.REDRIVE: 6,
    CommandKind.REDRIVE_RECORDS: 6,
    CommandKind.SHUT_DOWN_INSTANCE: 5,
    CommandKind.SHUT_DOWN_APPLICATION: 7,
    CommandKind.START_APPLICATION: 7,
}
#: Permanent: a number belongs to the agents of a release.
SINCE = {
    CommandKind.RESTART_PIPELINE: 2,
    CommandKind.SHUT_DOWN_INSTANCE: 2,
    CommandKind.REDRIVE_RECORDS: 3,
    CommandKind.EDIT_RECORD: 4,
    CommandKind.TEST_RECORD: 6,
    CommandKind.TEST_DEAD_LETTER: 6,
    CommandKind.PAUSE_PIPELINE: 5,
    CommandKind.RESUME_PIPELINE: 5,
}


def test_each_kind_has_one_row() -> None:
    assert list(KINDS) == [row.kind for row in KINDS.values()]
    assert KINDS.keys() == set(CommandKind)


@pytest.mark.parametrize("kind", CommandKind)
def test_the_cells_of_a_kind_agree(kind: CommandKind) -> None:
    row = KINDS[kind]
    assert (kind in TASK_KINDS) == (row.subject is Subject.TASK)
    assert (row.part is not None) == (row.applied_by is AppliedBy.PARTS)
    by_agent = row.applied_by is AppliedBy.AGENT
    assert (row.how is not None) == (by_agent and row.subject is Subject.TASK)
    assert row.is_shutdown == ("force" in row.fields)
    if row.subject is Subject.TASK:
        assert row.recipients is instance_of_run
    elif not by_agent:
        assert row.recipients is no_instance
    assert bool(row.slug) == (row.subject in (Subject.TASK, Subject.APPLICATION))
    if row.part is not None:
        part = KINDS[row.part]
        assert part.applied_by is AppliedBy.AGENT and part.fields == row.fields
        assert (row.subject is Subject.TASKS) == (part.subject is Subject.TASK)


def test_a_rollout_needs_a_reason_if_its_parts_do() -> None:
    assert len(ROLLOUTS) == 4
    for many, one in ROLLOUTS.items():
        assert many == f"{one}S"
        assert KINDS[many].needs_reason == KINDS[one].needs_reason


def test_older_agents_still_receive_the_kinds_that_they_know() -> None:
    assert {kind: row.since for kind, row in KINDS.items() if row.since > 1} == SINCE


def test_no_two_commands_do_the_same_with_a_task() -> None:
    acts = Counter(row.how for row in TASK_KINDS.values() if row.applied_by is AppliedBy.AGENT)
    assert set(acts.values()) == {1} and None not in acts
    slugs = Counter(row.slug for row in KINDS.values() if row.slug)
    assert set(slugs.values()) == {1}


def test_rollouts_skip_records_like_their_parts() -> None:
    skipping = {kind for kind in CommandKind if skips_records(kind)}
    assert skipping == {CommandKind.SKIP_RECORD, CommandKind.RESUME_AT, CommandKind.SKIP_RECORDS}
    assert all(skips_records(many) == skips_records(one) for many, one in ROLLOUTS.items())


def test_each_kind_is_named_in_few_files() -> None:
    name = re.compile(r"""(?:CommandKind\.|buttons\.|["'])([A-Z]+(?:_[A-Z]+)*)\b""")
    files = (
        path
        for folder in PRODUCT
        for path in sorted(REPOSITORY.joinpath(folder).rglob("*"))
        if path.suffix in (".py", ".html", ".js")
    )
    counts = Counter(kind for path in files for kind in {*name.findall(path.read_text())})
    numbers = {kind: counts[kind.value] for kind in CommandKind}
    assert {kind: number for kind, number in numbers.items() if number > MOST_FILES} == MORE_FILES
