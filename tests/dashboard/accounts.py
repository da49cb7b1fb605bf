"""Accounts, logged-in clients and tokens for tests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.test import Client

from arrester.controlplane import actions
from arrester.controlplane.access.roles import Role, TokenScope
from arrester.controlplane.history import erasure

PASSWORD = "a password for tests"


def make_user(name: str, *groups: str) -> User:
    """Create a user in the given groups."""
    user = User.objects.create(username=name, password=_hashed())
    user.groups.set(Group.objects.get_or_create(name=group)[0] for group in groups)
    return user


def make_superuser(name: str) -> User:
    """Create a superuser as the owner of the tables; outside of a transaction."""
    with erasure.as_owner():
        return User.objects.create(username=name, password=_hashed(), is_superuser=True)


@cache
def _hashed() -> str:
    """Return the hash of the password, which takes a quarter of a second, once."""
    return make_password(PASSWORD)


def logged_in(user: User) -> Client:
    """Return a client that is logged in."""
    client = Client()
    client.force_login(user)
    return client


def grant(name: str, roles: Mapping[str, Role]) -> None:
    """Give an account roles on applications."""
    for application, role in roles.items():
        actions.grant_role(name, application, role, actor="ada")


def person(name: str, *groups: str, roles: Mapping[str, Role]) -> Client:
    """Return a client of a new account with these roles."""
    user = make_user(name, *groups)
    grant(name, roles)
    return logged_in(user)


def token(account: str, name: str = "tests", scope: TokenScope = TokenScope.OPERATE) -> str:
    """Return a new REST token of an account."""
    return actions.create_token(account, name, actor=account, scope=scope).text
