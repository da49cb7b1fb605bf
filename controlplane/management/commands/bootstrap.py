"""Make the groups and the first three users, once."""

from __future__ import annotations

import os
import secrets
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand

USERS = ("admin", "operator", "viewer")


def password_variable(user: str) -> str:
    return f"ARRESTER_{user.upper()}_PASSWORD"


class Command(BaseCommand):
    help = "Make the groups and users admin, operator and viewer, if they are not there yet."

    def handle(self, *_args: Any, **_options: Any) -> None:
        for name in USERS:
            group, _ = Group.objects.get_or_create(name=name)
            user, created = User.objects.get_or_create(username=name)
            user.groups.add(group)
            if not created:
                continue
            given = os.environ.get(password_variable(name))
            password = given or secrets.token_urlsafe(24)
            user.set_password(password)
            user.save()
            shown = f"from {password_variable(name)}" if given else password
            self.stdout.write(f"made user {name}, password {shown}")
