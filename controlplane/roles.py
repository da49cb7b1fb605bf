"""What somebody may do: the names of Django's groups, the least first."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """A viewer looks, an operator acts too, an admin also decides who may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
