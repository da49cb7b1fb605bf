"""The counters of pipelines: always the sums of their tasks."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings

from arrester.controlplane import models
from arrester.domain.events import Event
from tests import histories
from tests.controlplane import streams

pytestmark = pytest.mark.django_db


@given(events=histories.histories)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_a_pipeline_has_the_sums_of_its_tasks_also_after_the_migration(
    events: list[Event],
) -> None:
    streams.append(events, received_at=datetime.now(UTC))
    expected = streams.failure_totals(streams.reference())
    assert streams.stored_failure_totals() == expected
    models.FailureTotal.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(importlib.import_module("arrester.migrations.0031_failure_totals").FILL)
    assert streams.stored_failure_totals() == expected
