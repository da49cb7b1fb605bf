"""Indexes of causes and tasks have what pages of failures are told by: an event that an index finds
stands in a block of its own, and a page looked into all of those."""

from __future__ import annotations

from django.db import migrations

FOUND = """
DROP INDEX event_of_cause;
DROP INDEX event_of_task;
CREATE INDEX event_of_cause ON event (cause, occurred_at, sequence)
    INCLUDE (stream, day, place, pipeline) WHERE count IS NOT NULL;
CREATE INDEX event_of_task ON event (task, sequence)
    INCLUDE (cause, occurred_at, stream, day, place, stage, count) WHERE task IS NOT NULL;
"""
AS_BEFORE = """
DROP INDEX event_of_cause;
DROP INDEX event_of_task;
CREATE INDEX event_of_task ON event (task, sequence) WHERE task IS NOT NULL;
CREATE INDEX event_of_cause ON event (cause, occurred_at, sequence) WHERE count IS NOT NULL;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0026_heads_in_rows")]

    operations = [migrations.RunSQL(FOUND, AS_BEFORE)]
