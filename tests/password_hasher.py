"""The product's way to store passwords, in one iteration: a password costs 0.3 s otherwise."""

from __future__ import annotations

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class FastHasher(PBKDF2PasswordHasher):
    """Processes of the server, which have its own hasher, accept these passwords too."""

    iterations = 1
