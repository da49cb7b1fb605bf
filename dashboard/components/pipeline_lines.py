"""Pipelines in a line each, with their last runs: on their page and on the overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arrester.controlplane import queries, store
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.dashboard.components.attention import Attention
from arrester.domain.state.live_runs import RunStatus


class Line(NamedTuple):
    """A pipeline, its last ended runs, and the first condition that needs attention."""

    of: queries.PipelineFlow
    ends: Sequence[store.RunEnd]
    condition: str = ""
    #: Beside the state of its run.
    is_late: bool = False

    @property
    def key(self) -> str:
        """The id of its row."""
        return "-".join(self.of.key)

    @property
    def runs(self) -> bool:
        """Whether a run runs, or an unguarded query: otherwise it has no rate."""
        return self.of.run is RunStatus.RUNNING


def lines(pipelines: Sequence[queries.PipelineFlow], needing: Attention) -> list[Line]:
    """Return the lines of pipelines, in the given order."""
    ends = queries.run_ends([(each.application, each.pipeline) for each in pipelines])
    conditions: dict[tuple[str, str | None], str] = {}
    late: set[tuple[str, str | None]] = set()
    for item in needing.items:
        of = (item.condition.application, item.condition.pipeline)
        if item.condition.cause is AlertCause.PIPELINE_PAUSED:
            # This one is about the pipeline; the others are about its tasks.
            conditions[of] = item.condition.line
        conditions.setdefault(of, item.condition.line)
        if item.status == "LATE":
            late.add(of)
    return [
        Line(
            of=each,
            ends=ends.get((each.application, each.pipeline), ()),
            condition=conditions.get((each.application, each.pipeline), ""),
            is_late=(each.application, each.pipeline) in late,
        )
        for each in pipelines
    ]
