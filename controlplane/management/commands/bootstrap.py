"""Make the groups and the first three users, once; whoever is there stays as they are."""

from __future__ import annotations

import os
import secrets
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand
from django.db import transaction

USERS = ("admin", "operator", "viewer")


def password_variable(user: str) -> str:
    return f"ARRESTER_{user.upper()}_PASSWORD"


class Command(BaseCommand):
    help = "Make the groups and users admin, operator and viewer, if they are not there yet."

    def handle(self, *_args: Any, **_options: Any) -> None:
        for name in USERS:
            password = _made(name)
            if password is not None:
                self.stdout.write(f"made user {name}, password {password}")


@transaction.atomic
def _made(name: str) -> str | None:
    """Make a group and its user; return the password, or where it is from, None if one is there."""
    group, _ = Group.objects.get_or_create(name=name)
    user, created = User.objects.get_or_create(username=name)
    # Admins decide about accounts that are there: what they took is not given back.
    if not created:
        return None
    given = os.environ.get(password_variable(name))
    password = given or secrets.token_urlsafe(24)
    user.set_password(password)
    user.save()
    user.groups.add(group)
    return f"from {password_variable(name)}" if given else password
