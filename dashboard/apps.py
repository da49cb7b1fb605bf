"""The pages and REST; all models are `controlplane`'s."""

from __future__ import annotations

from django.apps import AppConfig


class Dashboard(AppConfig):
    name = "arrester.dashboard"
    verbose_name = "Arrester's dashboard"
