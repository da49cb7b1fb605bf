"""The Django app of pages and REST; all models belong to `controlplane`."""

from __future__ import annotations

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in

from arrester.dashboard import session


class Dashboard(AppConfig):
    name = "arrester.dashboard"
    verbose_name = "Arrester's dashboard"

    def ready(self) -> None:
        user_logged_in.connect(session.mark_extended)
