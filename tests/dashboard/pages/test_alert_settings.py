"""The settings of alerts: channels that receive nothing, and what the server can send to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.test import Client
from django.urls import reverse

from arrester.controlplane.alerts import configuration
from arrester.controlplane.models import AlertRule
from tests.dashboard.accounts import logged_in, make_user


def settings_of(client: Client) -> str:
    return client.get(reverse("alert-settings")).content.decode()


def test_a_channel_without_an_enabled_rule_receives_nothing(db: None) -> None:
    admin = logged_in(make_user("ada", "admin"))
    first, _ = configuration.add_channel("http://127.0.0.1:9/a", "first", actor="ada")
    assert "receives nothing" not in settings_of(admin)
    second, _ = configuration.add_channel("http://127.0.0.1:9/b", "second", actor="ada")
    assert settings_of(admin).count("receives nothing") == 1

    # An escalation is a message, too; that of a disabled rule is none.
    AlertRule.objects.update(escalate_to=second, escalate_seconds=60)
    assert "receives nothing" not in settings_of(admin)
    AlertRule.objects.update(enabled=False)
    assert settings_of(admin).count("receives nothing") == 2
    assert first.id != second.id


def test_the_hint_fits_the_configuration(db: None, settings: Any) -> None:
    admin = logged_in(make_user("ada", "admin"))
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, smtp_url=None)
    shown = settings_of(admin)
    assert 'placeholder="https://…, slack://…' in shown
    assert "mail needs ARRESTER_SMTP_URL" in shown
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, smtp_url="smtp://mail.example")
    shown = settings_of(admin)
    assert 'placeholder="ops@example.com, https://…' in shown
    assert "Add a mail address or a URL" in shown
    assert "mail needs" not in shown
