"""The index of failed records by their terms. Only `store.record_index.blocks` writes it."""

from __future__ import annotations

from django.db import models

from arrester.controlplane.models.table import Table


class RecordBlock(Table):
    """A range of a log, and a Bloom filter of the terms of its failed records."""

    pk = models.CompositePrimaryKey("stream", "first")
    #: The log positions of its first and last event.
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    #: When its first and its last event were received.
    since = models.DateTimeField()
    received_at = models.DateTimeField()
    stream = models.IntegerField()
    #: The size of the filter.
    bits = models.IntegerField()
    #: Whether later events are in the next block: it has as many terms as fit.
    closed = models.BooleanField()
    filter = models.BinaryField()

    class Meta:
        db_table = "record_block"
        indexes = [models.Index("received_at", name="record_block_newest")]


class RecordIndex(Table):
    """Up to which log position the failed records of a log are in blocks."""

    stream = models.IntegerField(primary_key=True)
    position = models.BigIntegerField()

    class Meta:
        db_table = "record_index"
