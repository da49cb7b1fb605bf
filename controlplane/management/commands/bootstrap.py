"""Create groups, first users and the demo's credential; print the public key; change nothing."""

from __future__ import annotations

import os
import secrets
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand
from django.db import transaction

from arrester.controlplane import actions, signing
from arrester.controlplane.local import demo
from arrester.domain.wire.signed_messages import SERVER_KEY

USERS = ("admin", "operator", "viewer")
#: The password of the Redis user of the demo's agent.
DEMO_AGENT_PASSWORD = "ARRESTER_DEMO_AGENT_PASSWORD"


def password_variable(user: str) -> str:
    return f"ARRESTER_{user.upper()}_PASSWORD"


class Command(BaseCommand):
    help = (
        "Create the groups and users admin, operator and viewer unless they exist, and print the"
        " public key for agents."
    )

    def handle(self, *_args: Any, **_options: Any) -> None:
        for name in USERS:
            password = _create_user(name)
            if password is not None:
                self.stdout.write(f"created user {name}, password {password}")
        given = os.environ.get(DEMO_AGENT_PASSWORD)
        if given and actions.ensure_agent_credential(demo.APPLICATION, given, actor="bootstrap"):
            self.stdout.write(
                f"added a credential for agents of {demo.APPLICATION} from {DEMO_AGENT_PASSWORD}"
            )
        self.stdout.write(f"public key for agents: {SERVER_KEY}={signing.public_key()}")


@transaction.atomic
def _create_user(name: str) -> str | None:
    """Create a group and its user; return the password or its source, None if the user exists."""
    group, _ = Group.objects.get_or_create(name=name)
    user, created = User.objects.get_or_create(username=name)
    # Admins manage existing users: a role that they removed is not granted again.
    if not created:
        return None
    given = os.environ.get(password_variable(name))
    password = given or secrets.token_urlsafe(24)
    user.set_password(password)
    user.save()
    user.groups.add(group)
    return f"from {password_variable(name)}" if given else password
