"""Events of threads, the runs of pipelines, and their error policies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from arrester.domain.events.parts import (
    Count,
    Data,
    Failure,
    FinalResponse,
    Long,
    Moment,
)

#: The answers that a person may set for all failures of a stage.
StageAnswer = Literal["CONTINUE", "RETRY", "PAUSE", "FAIL"]


class ThreadStarted(Data, frozen=True, kw_only=True, tag=True):
    """A run of a pipeline has claimed its epoch and begins."""

    #: An unguarded query, which `Agent.observe` reports: its id is the checkpoint, and each of its
    #: runs has the epoch 0.
    observed: bool = False


class ThreadDied(Data, frozen=True, kw_only=True, tag=True):
    """A run of a pipeline has ended, for any reason."""

    reason: str
    failure: Failure | None = None
    #: A newer run owns the checkpoint.
    superseded: bool = False
    #: No failed record has reported the failure. The body has the stack trace.
    recordless: bool = False


class ThreadReplaced(Data, frozen=True, kw_only=True, tag=True):
    """A run died of an exception and will be replaced (KIP-671)."""

    reason: str
    #: The wait before the replacement, and its number in the current window.
    wait_ms: Count
    replacement: Count


class OutageFound(Data, frozen=True, kw_only=True, tag=True):
    """Too many records of a micro-batch failed alike to be bad records (errors.outage.*)."""

    #: The first of them.
    failure: Failure
    failed: Count
    #: All records of the micro-batch.
    records: Count
    #: PAUSE: each task stops at its first such record. FAIL: the run ends.
    response: FinalResponse
    #: `failed` is an estimate from a sample.
    estimated: bool = False


class StageDescribed(Data, frozen=True, kw_only=True):
    """The error policy of one stage of a pipeline."""

    name: Annotated[str, Meta(description="source, deserialize, process:<name> or produce.")]
    step: Annotated[str | None, Meta(description="The author's name of the step.")] = None
    #: The class of the step, or of the sink.
    kind: str
    answer: Annotated[
        str | None, Meta(description="The answer to every failure; null: the handler decides.")
    ] = None
    handler: Annotated[str | None, Meta(description="The class of the handler.")] = None
    #: The origin of the policy. `limit`: none, but a tolerance limit is set, so failures are left
    #: out.
    origin: Literal["on_error", "configuration", "limit", "default"]
    #: Answers by the name of a class or condition, which precede the handler's.
    on: Annotated[dict[str, str], Meta(description="Answers by exception class or condition.")] = (
        msgspec.field(default_factory=dict)
    )


class StageCommanded(Data, frozen=True, kw_only=True):
    """A stage whose policy a person has overridden."""

    #: As `StageDescribed.name`; all steps of that name.
    name: str
    answer: StageAnswer
    actor: str | None = None
    reason: str | None = None
    since: Moment


class PipelineDescribed(Data, frozen=True, kw_only=True, tag=True):
    """The error policy of a run, from its author and its configuration."""

    stages: tuple[StageDescribed, ...]
    #: Overrides set by people, which precede it.
    commanded: tuple[StageCommanded, ...] = ()
    #: The sink: `Files`, or where the author's function is defined.
    sink: str
    atomic: bool = False
    #: Its tasks have keys. False: it has one task, without a key.
    keyed: bool = True
    #: errors.tolerance.limit and errors.tolerance.rate.*
    tolerance_limit: Annotated[
        Long | None,
        Meta(description="For each task in one run; null: not set, negative: none."),
    ] = None
    rate_limit: Annotated[
        Long | None,
        Meta(description="For each task in one window; null: not set, negative: none."),
    ] = None
    rate_duration: Literal["minute", "hour", "day"] = "minute"
    #: errors.retries.limit, errors.retry.timeout, errors.retries.delay.max.ms
    retries_limit: Annotated[Long, Meta(description="Negative: unlimited.")] = 0
    retry_timeout_ms: Annotated[Long, Meta(description="Negative: unlimited.")] = -1
    retry_delay_max_ms: Long = 60_000
    #: errors.failure.scope
    scope: Literal["thread", "task"] = "thread"
    #: errors.outage.*
    outage_share: Annotated[
        float | None, Meta(description="Null: each record is handled by itself.")
    ] = None
    outage_minimum: Count = 0
    outage_response: FinalResponse | None = None
    #: errors.dlq.*
    dead_letter_format: Annotated[
        str | None, Meta(description="Null: skipped records are not stored.")
    ] = None
    dead_letter_place: str | None = None
    #: What follows when the run dies: an answer, or where the handler is defined.
    uncaught: Annotated[str, Meta(description="The answer to the end of the run by an exception.")]


class PolicyChanged(Data, frozen=True, kw_only=True, tag=True):
    """A person set or removed an override of a stage's policy."""

    stage: str
    #: The answer of the operator; None: the policy of the author and the configuration.
    answer: StageAnswer | None = None
    actor: str | None = None
    reason: str | None = None


class PipelinePaused(Data, frozen=True, kw_only=True, tag=True):
    """A person paused the pipeline: no micro-batch and no held record begins until it is resumed.

    A run that starts PAUSED reports it again.
    """

    since: Moment
    #: When the agent ends the pause; None: a person does.
    until: Moment | None = None
    actor: str | None = None
    reason: str | None = None


class PipelineResumed(Data, frozen=True, kw_only=True, tag=True):
    """A person, or the end of its time, ended the pause of the pipeline."""

    actor: str | None = None
    reason: str | None = None


ThreadEvent = (
    ThreadStarted
    | PipelineDescribed
    | PolicyChanged
    | PipelinePaused
    | PipelineResumed
    | ThreadDied
    | ThreadReplaced
    | OutageFound
)
