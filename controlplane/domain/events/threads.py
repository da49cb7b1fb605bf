"""What happens to runs of pipelines."""

from __future__ import annotations

from typing import Literal

import msgspec

from arrester.controlplane.domain.events.base import (
    Count,
    Data,
    Failure,
    Moment,
    Position,
    Response,
)

#: What a person may set as the answer to all failures of a stage.
StageAnswer = Literal["CONTINUE", "RETRY", "PAUSE", "FAIL"]


class ThreadStarted(Data, frozen=True, kw_only=True, tag=True):
    """A run of a pipeline has claimed its epoch and begins."""


class ThreadDied(Data, frozen=True, kw_only=True, tag=True):
    """A run of a pipeline has ended, for whatever reason."""

    reason: str
    failure: Failure | None = None
    #: A newer run owns the checkpoint.
    superseded: bool = False


class ThreadReplaced(Data, frozen=True, kw_only=True, tag=True):
    """A run has died of an exception, and a new one will take its place (KIP-671)."""

    reason: str
    #: How long the new one waits, and which replacement of the current window it is.
    wait_ms: Count
    replacement: Count


class OutageFound(Data, frozen=True, kw_only=True, tag=True):
    """Too many records of a micro-batch failed alike to be bad records (errors.outage.*)."""

    #: The first of them.
    failure: Failure
    failed: Count
    #: In the micro-batch, failed or not.
    records: Count
    #: PAUSE: each task is held at its first such record. FAIL: the run ends.
    response: Response
    #: `failed` is an estimate from a sample.
    estimated: bool = False


class StageDescribed(Data, frozen=True, kw_only=True):
    """What holds for failures of one stage of a pipeline."""

    #: `source`, `deserialize`, `process:<name>` or `produce`; `step` is the author's name of it.
    name: str
    step: str | None = None
    #: The class of the step, or of what the pipeline ends in.
    kind: str
    #: CONTINUE, PAUSE or FAIL where it is the same for every failure; None: `handler` is asked.
    answer: str | None = None
    #: Where the class of the handler is defined; None: there is none.
    handler: str | None = None
    #: Who said so. `limit`: nobody, but a limit of tolerance is set, so failures are left out.
    origin: Literal["on_error", "configuration", "limit", "default"]
    #: Answers by the name of a class or condition, which go before the handler's.
    on: dict[str, str] = msgspec.field(default_factory=dict)


class StageCommanded(Data, frozen=True, kw_only=True):
    """A stage whose failures are answered as a person has commanded, whatever the author says."""

    #: As `StageDescribed.name`; of several steps with that name, all of them.
    name: str
    answer: StageAnswer
    actor: str | None = None
    reason: str | None = None
    since: Moment


class PipelineDescribed(Data, frozen=True, kw_only=True, tag=True):
    """What a run does about failures, as its author and its configuration have it."""

    stages: tuple[StageDescribed, ...]
    #: What people have set before, and goes before all of that.
    commanded: tuple[StageCommanded, ...] = ()
    #: What the pipeline ends in: `Files`, or where the author's function is defined.
    sink: str
    atomic: bool = False
    #: errors.tolerance.limit and errors.tolerance.rate.*, for each task: None where nobody set
    #: one, negative for an infinite one.
    tolerance_limit: Position | None = None
    rate_limit: Position | None = None
    rate_duration: Literal["minute", "hour", "day"] = "minute"
    #: errors.retries.limit, errors.retry.timeout, errors.retries.delay.max.ms; negative: unlimited.
    retries_limit: Position = 0
    retry_timeout_ms: Position = -1
    retry_delay_max_ms: Position = 60_000
    #: errors.failure.scope
    scope: Literal["thread", "task"] = "thread"
    #: errors.outage.*; None: each record is judged by itself.
    outage_share: float | None = None
    outage_minimum: Count = 0
    outage_response: Response | None = None
    #: errors.dlq.*; None where skipped records are not kept.
    dead_letter_format: str | None = None
    dead_letter_place: str | None = None
    #: What follows when the run dies: an answer, or where the handler that is asked is defined.
    uncaught: str


class PolicyChanged(Data, frozen=True, kw_only=True, tag=True):
    """From now on failures of a stage are answered as a person has commanded, or as before."""

    stage: str
    #: None: as its author and its configuration have it.
    answer: StageAnswer | None = None
    actor: str | None = None
    reason: str | None = None


ThreadEvent = (
    ThreadStarted | PipelineDescribed | PolicyChanged | ThreadDied | ThreadReplaced | OutageFound
)
