"""Base of all tables."""

from __future__ import annotations

from django.db import models


class Table(models.Model):
    """A table; its rows are shown with their key."""

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)
