"""REST: the checkpoints of lists: a parameter, and fields of tasks and runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework import serializers

from arrester.controlplane import queries
from arrester.dashboard.rest.field_types import ListedChoiceField

#: The value of the parameter `checkpoints` for the newest of each pipeline.
LIVE = "live"


class CheckpointsField(ListedChoiceField):
    """The checkpoints of a list: the newest of each pipeline, or all."""

    def __init__(self) -> None:
        super().__init__(
            [LIVE, "all"],
            required=False,
            default=LIVE,
            help_text="`live`: the newest checkpoint of each pipeline.",
        )


class LiveField(serializers.BooleanField):
    """Whether a run, or the id of a task, is of a live checkpoint.

    The serializer's context has `checkpoints`.
    """

    def __init__(self, source: str) -> None:
        text = "Whether its checkpoint is the newest of its pipeline; no count contains others."
        super().__init__(source=source, read_only=True, help_text=text)

    def to_representation(self, value: Any) -> bool:
        """Return whether the checkpoint is live."""
        checkpoints: queries.Checkpoints = self.context["checkpoints"]
        return queries.pipeline_key(value) in checkpoints.live


class LastRunEndedField(serializers.DateTimeField):
    """When the last run on the checkpoint of a run, or of a task's id, ended.

    The serializer's context has `checkpoints`.
    """

    def __init__(self, source: str) -> None:
        text = "When the last run on its checkpoint ended; null while one runs."
        super().__init__(source=source, read_only=True, allow_null=True, help_text=text)

    def to_representation(self, value: Any) -> Any:
        """Return the time, or None."""
        checkpoints: queries.Checkpoints = self.context["checkpoints"]
        since: datetime | None = checkpoints.no_run_since.get(queries.pipeline_key(value))
        return None if since is None else super().to_representation(since)
