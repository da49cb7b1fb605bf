"""The index of failed records by their terms. Only `store.record_index` writes it."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
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


class RecordGroup(Table):
    """Many blocks of a log with their filters, ordered by bit: a search reads a few bits of each.

    The rows of these blocks are deleted.
    """

    pk = models.CompositePrimaryKey("stream", "first")
    stream = models.IntegerField()
    #: The log positions of its first and last event.
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    #: When its first and its last event were received.
    since = models.DateTimeField()
    received_at = models.DateTimeField()
    #: The same of each block.
    firsts = ArrayField(models.BigIntegerField())
    lasts = ArrayField(models.BigIntegerField())
    sinces = ArrayField(models.DateTimeField())
    received_ats = ArrayField(models.DateTimeField())
    #: The first bit of all blocks, then the second one of all, and so on.
    filters = models.BinaryField()

    class Meta:
        db_table = "record_group"


class RecordIndex(Table):
    """Up to which log position the failed records of a log are in blocks."""

    stream = models.IntegerField(primary_key=True)
    position = models.BigIntegerField()

    class Meta:
        db_table = "record_index"
