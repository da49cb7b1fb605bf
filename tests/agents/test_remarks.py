"""The actor and the reason of a call of the agent: any text of any length, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from arrester.agents import Agent
from arrester.domain.errors import InvalidValue
from tests.histories import JFK

PATCH = '[{"op": "remove", "path": "/note"}]'
CALLS: dict[str, Callable[..., object]] = {
    "resume": lambda agent, **texts: agent.resume(JFK, **texts),
    "skip": lambda agent, **texts: agent.skip(JFK, **{"reason": "x", **texts}),
    "edit": lambda agent, **texts: agent.edit(JFK, PATCH, **{"reason": "x", **texts}),
    "restart": lambda agent, **texts: agent.restart(JFK, **texts),
    "resume_at": lambda agent, **texts: agent.resume_at(JFK, 7, **{"reason": "x", **texts}),
    "pause": lambda agent, **texts: agent.pause(JFK, **texts),
    "set_policy": lambda agent, **texts: agent.set_policy(
        "delays", "produce", None, **{"reason": "x", **texts}
    ),
    "pause_pipeline": lambda agent, **texts: agent.pause_pipeline("delays", **texts),
    "resume_pipeline": lambda agent, **texts: agent.resume_pipeline("delays", **texts),
    "redrive": lambda agent, **texts: agent.redrive("delays", None, **{"reason": "x", **texts}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("argument", ["actor", "reason"])
@pytest.mark.parametrize("value", [7, object(), b"x", "unpaired \ud800"])
def test_an_actor_or_reason_that_is_no_text_is_refused(
    name: str, argument: str, value: Any
) -> None:
    # It is refused before anything of the agent is used.
    agent = object.__new__(Agent)
    with pytest.raises(InvalidValue, match=argument):
        CALLS[name](agent, **{argument: value})
