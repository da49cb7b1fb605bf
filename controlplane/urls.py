"""The URLs of the dashboard."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("", include("arrester.dashboard.urls"))]

handler500 = "arrester.dashboard.rest.problems.server_error"
