"""The pause of a pipeline in its journal: its report by each run, and the end of its time."""

from __future__ import annotations

from datetime import datetime

from arrester.domain.events import PipelinePaused, PipelineResumed
from arrester.domain.state.states import PipelinePause


def is_over(pause: PipelinePause, now: datetime) -> bool:
    """Whether the time of a pause is over, by the clock of this host."""
    return pause.until is not None and now >= pause.until


def report_of(pause: PipelinePause) -> PipelinePaused:
    """Return the event of a pause."""
    return PipelinePaused(
        since=pause.since, until=pause.until, actor=pause.actor, reason=pause.reason
    )


def end_of(pause: PipelinePause) -> PipelineResumed:
    """Return the event that ends a pause whose time is over."""
    by = "pause" if pause.actor is None else f"pause of {pause.actor}"
    return PipelineResumed(
        actor=by, reason=f"the pause ended at {pause.until:%Y-%m-%d %H:%M:%S} UTC"
    )
