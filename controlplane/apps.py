"""The one Django app with models."""

from __future__ import annotations

from django.apps import AppConfig


class ControlPlane(AppConfig):
    name = "arrester.controlplane"
    verbose_name = "Arrester"
