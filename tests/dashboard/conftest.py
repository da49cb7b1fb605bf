"""Two people and a small airline, on real servers."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from redis import Redis

from tests.dashboard.browser import PASSWORD
from tests.dashboard.story import Story


def make_user(name: str, *groups: str) -> User:
    """Make a user who is in some groups."""
    user = User.objects.create_user(name, password=PASSWORD)
    user.groups.set(Group.objects.get_or_create(name=group)[0] for group in groups)
    return user


def logged_in(user: User) -> Client:
    """Return a browser in which the user has logged in."""
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator(db: None) -> Client:
    """Ana may act."""
    return logged_in(make_user("ana", "operator"))


@pytest.fixture
def viewer(db: None) -> Client:
    """Ben may look."""
    return logged_in(make_user("ben", "viewer"))


@pytest.fixture
def flights(db: None, redis: Redis) -> Story:
    """An airline whose pipeline runs."""
    story = Story()
    story.starts()
    return story
