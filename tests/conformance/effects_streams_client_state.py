"""The instance's states, as an agent moves through them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from agents import Agent
from agents.lifecycle import Ending
from controlplane.domain.states import InstanceStatus
from tests.agents.engine.bench import Bench
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


CHECKS = {"close-races-with-error": check_closes_race}
