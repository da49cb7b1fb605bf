"""What happens to runs of pipelines."""

from __future__ import annotations

from controlplane.domain.events.base import Count, Data, Failure


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


ThreadEvent = ThreadStarted | ThreadDied | ThreadReplaced
