"""Owner rules, and the filters of lists that people have saved."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import models

from arrester.controlplane.models.table import Table


class OwnerRule(Table):
    """Who owns what matches three patterns; the first rule that matches counts.

    An empty pattern matches anything; in others `*` is any text.
    """

    id = models.BigAutoField(primary_key=True)
    #: The order of the rules, without gaps, from 1.
    place = models.IntegerField()
    application = models.TextField(default="")
    pipeline = models.TextField(default="")
    stage = models.TextField(default="")
    #: The name of an account, or that of a team.
    owner = models.TextField()

    class Meta:
        db_table = "owner_rule"

    def __str__(self) -> str:
        given = {"application": self.application, "pipeline": self.pipeline, "stage": self.stage}
        about = ", ".join(f"{name} {pattern}" for name, pattern in given.items() if pattern)
        return f"{self.place}. {about or 'everything'}: {self.owner}"


class SavedFilter(Table):
    """The filter of a list under a name: of one person, or shared."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_filters")
    #: The name of the URL of the list.
    page = models.TextField()
    name = models.TextField()
    #: Parameters of the URL.
    query = models.TextField()
    #: The application that it names; empty: none.
    application = models.TextField(default="")
    shared = models.BooleanField(default=False)

    class Meta:
        db_table = "saved_filter"
        constraints = [models.UniqueConstraint("user", "page", "name", name="saved_filter_once")]
