"""The roles: names of Django's groups, the least first."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """A viewer reads, an operator also acts, an admin also manages accounts."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
