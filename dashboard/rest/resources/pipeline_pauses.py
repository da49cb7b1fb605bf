"""REST: the pause of a pipeline."""

from __future__ import annotations

from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain.state.states import PipelinePause


class PipelinePauseSerializer(StructSerializer):
    class Meta:
        struct = PipelinePause
        fields = ("paused_at", "ends_at", "actor", "reason")
        sources = {"paused_at": "since", "ends_at": "until"}
