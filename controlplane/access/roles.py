"""The roles: names of Django's groups, the least first."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """A viewer reads, an operator also acts, an admin also manages accounts."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, least: Role) -> bool:
        """Return whether the role permits everything that `least` permits."""
        roles = list(Role)
        return roles.index(self) >= roles.index(least)


class TokenScope(StrEnum):
    """What a REST token may do at most; the role of its account limits it further."""

    READ = "read"
    OPERATE = "operate"
