"""Behind a record that a transform fails of, the rest goes to an atomic sink without another run
before it: what comes of it is the same, and what fails there leaves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from arrester import PAUSE
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import Handler, LogAndContinue, LogAndPause, OnClass
from arrester.controlplane.domain.events import RecordFailed, RecordsDeadLettered, TaskPaused
from tests.agents.pipeline_bench import Bench, blocks, sink_to, wait_until

pytestmark = pytest.mark.spark


class Spy:
    """A sink, and of each call whether it ran the transform, and whether it returned."""

    def __init__(self, folder: Path, *, fails: int | None = None) -> None:
        self.calls: list[tuple[bool, bool]] = []
        self._write = sink_to(folder)
        #: The number of a call that raises of its own.
        self._fails = fails

    def __call__(self, df: DataFrame, number: int) -> None:
        ran = "MapInPandas" in df._jdf.queryExecution().analyzed().toString()
        self.calls.append((ran, False))
        if len(self.calls) == self._fails:
            raise OSError("no space left")
        self._write(df, number)
        self.calls[-1] = (ran, True)


def numbering() -> Callable[[DataFrame], DataFrame]:
    """Return a transform that fails of bad values."""

    def numbers(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            if (frame["value"] == "bad").any():
                raise ValueError("bad")
            yield frame

    return lambda df: df.mapInPandas(numbers, df.schema)


def pipeline_of(
    bench: Bench,
    spy: Spy,
    *,
    handler: Handler | None = None,
    atomic: bool = True,
    produce: Handler | None = None,
    on: OnClass | None = None,
) -> Pipeline:
    on_error = handler or LogAndContinue()
    builder = bench.define().transform("numbers", numbering(), on_error=on_error, on=on)
    return builder.write(spy, atomic=atomic, on_error=produce)


def add(bench: Bench, *bad: int) -> None:
    """Add a micro-batch of 60 records, half of them of each of two tasks."""
    rows = [("ab"[n >= 30], n, "bad" if n in bad else "x") for n in range(60)]
    bench.add(*rows)


def ran(bench: Bench, pipeline: Pipeline, **settings: Any) -> None:
    bench.start(pipeline, **settings)
    bench.wait_for_input()
    bench.stop()


def failed(bench: Bench) -> set[int | None]:
    positions = [each.position for each in bench.outbox.of(RecordFailed)]
    assert len(positions) == len(set(positions))
    return set(positions)


def test_the_sink_runs_what_is_left_and_nothing_of_it_is_kept(bench: Bench) -> None:
    before, spy = blocks(bench.spark), Spy(bench.folder / "out")
    add(bench, 7)
    ran(bench, pipeline_of(bench, spy))

    assert spy.calls == [(True, True)]
    assert failed(bench) == {7}
    assert sorted(n for _, n in bench.written()) == [n for n in range(60) if n != 7]
    assert blocks(bench.spark) <= before


def test_a_second_guilty_record_leaves_nothing_and_is_found_behind_the_first(bench: Bench) -> None:
    spy = Spy(bench.folder / "out")
    add(bench, 7, 41)
    ran(bench, pipeline_of(bench, spy))

    # What was decided of the first stands; the second is found before the sink is called.
    assert spy.calls == [(True, False), (False, True)]
    assert failed(bench) == {7, 41}
    assert sorted(n for _, n in bench.written()) == [n for n in range(60) if n not in (7, 41)]
    assert sorted(each["position"] for each in bench.dead_letters()) == [7, 41]
    assert sum(each.count for each in bench.outbox.of(RecordsDeadLettered)) == 2


def test_what_the_sink_raises_is_its_own(bench: Bench) -> None:
    spy = Spy(bench.folder / "out", fails=1)
    add(bench, 7)
    ran(bench, pipeline_of(bench, spy))

    assert spy.calls == [(True, False), (False, True)]
    assert failed(bench) == {7}
    assert sorted(n for _, n in bench.written()) == [n for n in range(60) if n != 7]
    assert bench.deaths == []


def test_what_is_raised_afterwards_tells_nothing_of_the_second_record(bench: Bench) -> None:
    """Its message may have what is redacted of it, and of no other record."""
    spy = Spy(bench.folder / "out", fails=2)
    add(bench, 7, 41)
    ran(bench, pipeline_of(bench, spy, produce=LogAndContinue()))

    assert spy.calls == [(True, False), (False, False)]
    stacks = {
        each.body.stack
        for each in bench.outbox.events
        if isinstance(each.data, RecordFailed)
        and each.data.failure.stage == "produce"
        and each.body is not None
    }
    assert stacks
    assert all("no space left" in str(each) and "ValueError" not in str(each) for each in stacks)


def test_a_pause_knows_all_that_fails(bench: Bench) -> None:
    """The record that was found first need not be the first of its task."""
    spy = Spy(bench.folder / "out")
    add(bench, 7, 12)
    ran(bench, pipeline_of(bench, spy, handler=LogAndPause()))

    assert [done for _, done in spy.calls] == [True]
    assert failed(bench) == {7}
    assert [each.position for each in bench.outbox.of(TaskPaused)] == [7]
    assert sorted(n for _, n in bench.written()) == [*range(7), *range(30, 60)]


def test_a_pause_of_an_earlier_step_holds_beside_what_the_sink_meets(bench: Bench) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["position"] == 12:
            raise ValueError("twelve")
        return row

    spy = Spy(bench.folder / "out")
    checked = bench.define().process("check", check, on_error=LogAndPause())
    tail = checked.transform("numbers", numbering(), on_error=LogAndContinue())
    add(bench, 20, 41, 44)
    ran(bench, tail.write(spy, atomic=True))

    # 20 is held unevaluated behind 12; 44 is found behind 41.
    assert [each.position for each in bench.outbox.of(TaskPaused)] == [12]
    assert failed(bench) == {12, 41, 44}
    assert sorted(each["position"] for each in bench.dead_letters()) == [41, 44]
    kept = [n for n in range(30, 60) if n not in (41, 44)]
    assert sorted(n for _, n in bench.written()) == [*range(12), *kept]


@pytest.mark.parametrize(
    "setting",
    [
        {"errors_decisions": "always"},
        {"errors_tolerance_limit": 5},
        {"errors_outage_share": 0.5},
        # Of a record that its retry cures nothing is decided.
        {"errors_retries_limit": 1},
        # The next one may be held.
        {"on": {KeyError: PAUSE}},
        {"atomic": False},
    ],
)
def test_it_is_run_before_where_a_decision_could_not_stand(
    bench: Bench, setting: dict[str, Any]
) -> None:
    spy = Spy(bench.folder / "out")
    add(bench, 7)
    of_pipeline = {name: value for name, value in setting.items() if name in ("atomic", "on")}
    of_run = {name: value for name, value in setting.items() if name not in of_pipeline}
    ran(bench, pipeline_of(bench, spy, **of_pipeline), **of_run)

    assert spy.calls == [(False, True)]
    assert failed(bench) == {7}


def test_where_no_record_passes_beside_it_nothing_is_decided(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be that what they need is down: then no record is to blame."""
    monkeypatch.setattr("arrester.agents.execution.bisection.JOBS", 6)
    spy = Spy(bench.folder / "out")
    add(bench, *range(60))
    bench.start(pipeline_of(bench, spy))
    wait_until(lambda: bool(bench.deaths))

    assert "more of its records fail" in bench.deaths[0].reason
    assert (spy.calls, failed(bench), bench.dead_letters()) == ([], set(), [])
