"""Operator overrides of a stage's error policy: which are allowed, and the resulting policy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from arrester.domain.error_policy.policy import StageKind
from arrester.domain.events import (
    PipelineDescribed,
    PolicyChanged,
    StageAnswer,
    StageCommanded,
)
from arrester.domain.state.states import ThreadState


def changed(
    policy: PipelineDescribed | None, event: PolicyChanged, at: datetime
) -> PipelineDescribed | None:
    """Return the policy of a run after `event`; None while the run has not reported one."""
    if policy is None:
        return None
    others = tuple(each for each in policy.commanded if each.name != event.stage)
    if event.answer is None:
        return replace(policy, commanded=others)
    new = StageCommanded(
        name=event.stage,
        answer=event.answer,
        actor=event.actor,
        reason=event.reason,
        since=at,
    )
    return replace(policy, commanded=(*others, new))


def policy_refusal(
    runs: Collection[ThreadState], pipeline: str, stage: str, answer: StageAnswer | None
) -> str | None:
    """Return why the policy of a stage may not be set in the pipeline's runs, or None."""
    if not runs:
        return (
            f"{pipeline} does not run, or its instance is LOST: only a run can set the policy of "
            "its checkpoint"
        )
    for thread in runs:
        if thread.policy is None:
            return f"{pipeline} has not reported its policy yet"
        names = [each.name for each in thread.policy.stages]
        refusal = stage_refusal(pipeline, names, stage) or retry_refusal(
            stage, answer, retries=thread.policy.retries_limit
        )
        if refusal is not None:
            return refusal
    if answer is None and not any(_is_commanded(each, stage) for each in runs):
        return f"{stage} of {pipeline} is answered as in the code already"
    return None


def _is_commanded(thread: ThreadState, stage: str) -> bool:
    policy = thread.policy
    return policy is not None and any(each.name == stage for each in policy.commanded)


def stage_refusal(pipeline: str, names: Sequence[str], stage: str) -> str | None:
    """Return why there is no such stage, or None; agents call it too."""
    if stage in names:
        return None
    return f"{pipeline} has no stage {stage}; it has {', '.join(dict.fromkeys(names))}"


def retry_refusal(stage: str, answer: StageAnswer | None, *, retries: int) -> str | None:
    """Return why RETRY may not be set, or None; agents call it too.

    At the other stages retriable failures use the budget before any handler is called (KIP-1065).
    """
    if answer != "RETRY":
        return None
    if StageKind.of(stage) is not StageKind.DESERIALIZE:
        return f"{stage} has used its retries before a handler is called: RETRY would be FAIL"
    if not retries:
        return (
            "there is no budget to retry with (errors.retries.limit, errors.retry.timeout): "
            "RETRY would be FAIL"
        )
    return None
