"""REST: the pause of a pipeline."""

from __future__ import annotations

from arrester.controlplane.domain.state.states import PipelinePause
from arrester.dashboard.rest.struct_serializers import StructSerializer


class PipelinePauseSerializer(StructSerializer):
    class Meta:
        struct = PipelinePause
        fields = ("since", "until", "actor", "reason")
