"""The instance's states, as an agent moves through them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from arrester import Agent
from arrester.agents.runtime.instance import Ending
from arrester.domain.state.states import InstanceStatus
from tests.agents.pipeline_bench import Bench
from tests.conformance.cases import Case


def check_closes_race(case: Case, bench: Bench) -> None:
    closes, errors = case.given["concurrent_closes"], case.given["concurrent_error_close"]
    with Agent(bench.spark, application="tests") as agent:
        runtime = agent._runtime
        with ThreadPoolExecutor(closes + errors) as pool:
            made = [pool.submit(agent.stop) for _ in range(closes)]
            made += [pool.submit(runtime.end, Ending.FAILED, "error") for _ in range(errors)]
        raised = [each.exception() for each in made if each.exception() is not None]
    assert len(raised) == case.expect["exceptions"]
    assert agent.state is InstanceStatus.NOT_RUNNING


def check_remove(case: Case, bench: Bench) -> None:
    removed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
        patch.delenv("REDIS_URL", raising=False)
        agent = Agent(bench.spark, application="tests")
        for state in case.given["states"]:
            if state == "RUNNING":
                bench.checking(lambda row: row, runner=agent).start(bench.checkpoint)
            assert agent.state == state
            removed.append(agent.remove_thread("lines"))
        assert removed == case.expect["removed"]
        assert agent.is_running
        agent.stop()


CHECKS = {
    ("expect.removed",): check_remove,
    ("given.concurrent_closes",): check_closes_race,
}
