"""The public key of the server, for accounts that may read."""

from __future__ import annotations

from django.test import Client
from django.urls import reverse

from arrester.controlplane import signing


def test_the_public_key_is_shown_to_readers_only(viewer: Client) -> None:
    key = signing.public_key()
    assert viewer.get("/api/v1/agents/key").json() == {"key": key}
    assert f"ARRESTER_SERVER_KEY={key}" in viewer.get(reverse("settings")).content.decode()
    assert Client().get("/api/v1/agents/key").status_code == 401
