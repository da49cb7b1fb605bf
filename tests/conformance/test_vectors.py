"""Run every conformance case against the real code.

A case runs by the rules of the domain or by an agent on Spark (`effects`), or it is listed with the
reason why it has no meaning on Spark. A case in an unknown form fails.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import pytest

from tests.agents.pipeline_bench import Bench
from tests.conformance import effects
from tests.conformance.cases import (
    FOLDER,
    HERE,
    OURS,
    Case,
    Entry,
    as_decided,
    decided,
    has_meaning,
    not_applicable,
    read,
)

CASES = [as_decided(case) for case in read(FOLDER) if has_meaning(case)]


#: They count a million failures.
LONG = {"connect_tolerance_shipped/all-many-failures"}
_PAUSE = "run/test_pause_and_resume.py::"
_DEAD = "decisions/test_failure_scope.py::test_a_dead_task_is_held_until_an_operator_restarts_it"
#: Cases on Spark that a test of the agent checks too; they run in `make test-long`.
GUARDED = {
    "connect_dlq/integration-errant-reporter": (
        "dead_letters/test_kafka.py::"
        "test_a_record_of_kafka_becomes_a_dead_letter_with_its_own_bytes"
    ),
    "connect_rest_and_state/connector-status-does-not-roll-up": _DEAD,
    "connect_rest_and_state/no-auto-restart": _DEAD,
    "connect_rest_and_state/failed-task-ignores-pause": (
        "run/commands/test_pause_command.py::test_a_global_or_dead_task_is_not_paused_by_hand"
    ),
    "connect_rest_and_state/task-fails-in-poll": (
        "run/test_termination.py::test_a_failed_source_ends_the_run_and_isolates_no_record"
    ),
    "seed_kip990_pause/pause-commits-last-good": f"{_PAUSE}test_a_pause_holds_its_task_only",
    "seed_kip990_pause/paused-listing": f"{_PAUSE}test_a_pause_holds_its_task_only",
    "seed_kip990_pause/skip-then-resume": (
        f"{_PAUSE}test_resume_after_the_record_runs_held_records_without_new_input"
    ),
    "seed_kip990_pause/fix-and-restart": (
        f"{_PAUSE}test_a_new_instance_restarts_at_the_failed_record"
    ),
    "streams_uncaught_handler/replace-no-loss": (
        "run/test_replace_thread.py::test_a_replaced_thread_loses_nothing_and_leaves_tasks_paused"
    ),
    "streams_uncaught_handler/replace-two-threads": (
        "runtime/test_uncaught_handler.py::test_too_many_replacements_end_the_instance"
    ),
}
RULES = [case for case in CASES if effects.runner(case) is None]
ON_SPARK = [case for case in CASES if effects.runner(case) is not None]


def adapter(case: Case) -> Any:
    return import_module(f"tests.conformance.adapters.{case.suite}")


def test_there_are_cases() -> None:
    assert CASES


def marked(case: Case) -> Any:
    is_long = case.name in LONG or case.name in GUARDED
    return pytest.param(case, marks=[pytest.mark.long] if is_long else [], id=case.name)


@pytest.mark.parametrize("case", [marked(case) for case in RULES])
def test_the_rules_conform_to_the_case(case: Case) -> None:
    ours = adapter(case)
    case.run(lambda: ours.check(case), ours.IGNORED)


@pytest.mark.spark
@pytest.mark.parametrize("case", [marked(case) for case in ON_SPARK])
def test_the_agent_conforms_to_the_case(case: Case, bench: Bench) -> None:
    check = effects.runner(case)
    assert check is not None
    case.run(partial(check, case, bench), adapter(case).IGNORED)


@pytest.mark.parametrize(("name", "guard"), GUARDED.items(), ids=GUARDED)
def test_a_guarded_case_and_its_guard_exist(name: str, guard: str) -> None:
    file, _, test = guard.partition("::")
    assert f"def {test}(" in (HERE.parent / "agents" / file).read_text()
    assert FOLDER != OURS or name in {case.name for case in ON_SPARK}


@pytest.mark.parametrize(
    "entry",
    [*not_applicable(), *decided()],
    ids=lambda entry: entry.name,
)
def test_every_listed_exception_has_a_case_and_a_reason(entry: Entry) -> None:
    assert entry.why.strip()
    assert any(entry.fits(case) for case in read(OURS))


def test_no_case_is_in_both_lists() -> None:
    twice = [
        case.name
        for case in read(OURS)
        if not has_meaning(case) and any(entry.fits(case) for entry in decided())
    ]
    assert twice == []
