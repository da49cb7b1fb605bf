"""What REST answers of what an application is made of, by field."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from controlplane.domain.states import InstanceStatus, ThreadStatus
from dashboard.serializers import AsOfQuery, FailureField, choices


class Instance(serializers.Serializer[Any]):
    """A driver process."""

    id = serializers.UUIDField()
    application = serializers.CharField()
    status = serializers.ChoiceField(choices(InstanceStatus), source="status.value")
    lost = serializers.BooleanField(help_text="Not heard: the status is the last one known.")
    since = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    host = serializers.CharField()
    pid = serializers.IntegerField()
    versions = serializers.DictField(child=serializers.CharField())
    reason = serializers.CharField(allow_null=True)
    failure = FailureField(allow_null=True)
    sequence = serializers.IntegerField()


class Thread(serializers.Serializer[Any]):
    """A pipeline at a checkpoint: its newest run."""

    application = serializers.CharField()
    pipeline = serializers.CharField()
    checkpoint = serializers.CharField()
    epoch = serializers.IntegerField()
    status = serializers.ChoiceField(choices(ThreadStatus), source="status.value")
    instance = serializers.UUIDField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    failure = FailureField(allow_null=True)
    sequence = serializers.IntegerField()


class InstanceQuery(AsOfQuery):
    """Which instances of an application."""

    ended = serializers.BooleanField(required=False, default=False)
