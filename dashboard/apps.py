"""The Django app of pages and REST; all models belong to `controlplane`."""

from __future__ import annotations

from django.apps import AppConfig


class Dashboard(AppConfig):
    name = "arrester.dashboard"
    verbose_name = "Arrester's dashboard"
