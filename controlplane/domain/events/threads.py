"""What happens to runs of pipelines."""

from __future__ import annotations

from controlplane.domain.events.base import Count, Data, Failure, Response


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


ThreadEvent = ThreadStarted | ThreadDied | ThreadReplaced | OutageFound
