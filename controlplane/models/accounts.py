"""Tables about accounts, besides Django's own: tokens of REST, and single sign-on."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import models

from arrester.controlplane.models.table import Table


class RestToken(Table):
    """A token by which a program uses REST as an account; its text is not stored."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="rest_tokens")
    name = models.TextField()
    #: SHA-256 of the token, in hexadecimal digits: a random text needs no slow hash.
    digest = models.TextField(unique=True)
    #: One of `roles.TokenScope`.
    scope = models.TextField()
    created_at = models.DateTimeField()
    #: None: never.
    expires_at = models.DateTimeField(null=True)
    #: Written at most once a minute.
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "rest_token"
        constraints = [models.UniqueConstraint("user", "name", name="rest_token_name")]


class SignOnAccount(Table):
    """The account of a subject of an OpenID Connect provider."""

    id = models.BigAutoField(primary_key=True)
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="sign_on")
    issuer = models.TextField()
    subject = models.TextField()

    class Meta:
        db_table = "sign_on_account"
        constraints = [models.UniqueConstraint("issuer", "subject", name="sign_on_subject")]
