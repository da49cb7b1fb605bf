"""The settings of alerts: channels that receive nothing, and what the server can send to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.test import Client
from django.urls import reverse

from arrester.controlplane.access.roles import Role
from arrester.controlplane.alerts import configuration
from arrester.controlplane.models import AlertRule
from tests.dashboard.accounts import logged_in, make_user, person


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


def test_each_account_gets_alerts_about_what_it_owns_by_mail(db: None, settings: Any) -> None:
    url, page = reverse("own-alerts"), reverse("settings")
    confined = person("oli", roles={"flights": Role.VIEWER})
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, smtp_url=None)
    assert "Your alerts" not in confined.get(page).content.decode()
    assert "is not allowed" in confined.post(url, {"address": "o@example.com"}).content.decode()
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, smtp_url="smtp://mail.example")
    assert confined.post(url, {"address": "o@example.com"}).status_code == 302
    assert "are sent to" in confined.get(page).content.decode()
    admin = logged_in(make_user("ada", "admin"))
    assert "own channel" in settings_of(admin) and "receives nothing" not in settings_of(admin)
    assert "that of the" in settings_of(admin)
    (rule,) = AlertRule.objects.all()
    form = {"rule": str(rule.id), "name": "x", "channel": "owner", "every": "1", "preview": "1"}
    assert admin.post(reverse("save-rule"), form).status_code == 200
    form = {"rule": str(rule.id), "name": "x", "channel": "owner", "every": "1"}
    assert admin.post(reverse("save-rule"), form).status_code == 302
    rule.refresh_from_db()
    assert (rule.name, rule.channel, rule.enabled) == ("x", None, False)
    assert "receives nothing" in settings_of(admin)
    confined.post(url, {"end": "1"})
    assert "own channel" not in settings_of(admin)
