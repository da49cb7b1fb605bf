"""Tables about accounts, besides Django's own: roles, tokens of REST, and single sign-on."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.db import models

from arrester.controlplane.models.table import Table


class ApplicationRole(Table):
    """The role of an account on one application; those on all applications are Django's groups."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="application_roles")
    application = models.TextField()
    #: One of `roles.Role`.
    role = models.TextField()

    class Meta:
        db_table = "application_role"
        constraints = [models.UniqueConstraint("user", "application", name="application_role_once")]


class RestToken(Table):
    """A token by which a program uses REST as an account; its text is not stored."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="rest_tokens")
    name = models.TextField()
    #: SHA-256 of the token, in hexadecimal digits: a random text needs no slow hash.
    digest = models.TextField(unique=True)
    #: One of `roles.TokenScope`.
    scope = models.TextField()
    #: What it may see; NULL: all that the account may.
    applications = ArrayField(models.TextField(), null=True)
    created_at = models.DateTimeField()
    #: When the token expires; None: never.
    expires_at = models.DateTimeField(null=True)
    #: When a request last used the token; written at most once a minute.
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
