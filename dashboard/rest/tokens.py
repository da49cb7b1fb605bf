"""REST: the tokens of accounts, with the permissions of the page Settings."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.controlplane.roles import Role
from arrester.dashboard.permissions import NOT_AN_ADMIN, Person, person
from arrester.dashboard.rest import base


class TokenSerializer(serializers.Serializer[Any]):
    """The token of an account; nothing shows its text again."""

    account = serializers.CharField(source="name")
    role = serializers.ChoiceField(base.choices(Role), allow_null=True)
    created_at = serializers.DateTimeField(
        source="token_created", allow_null=True, help_text="Null: the account has no token."
    )


class NewTokenSerializer(serializers.Serializer[Any]):
    """A new token has no fields: it is for the account of the request."""


class CreatedTokenSerializer(serializers.Serializer[Any]):
    """A new token: only this response has its text."""

    account = serializers.CharField()
    token = serializers.CharField()


class TokensView(base.RestView):
    """The tokens."""

    permission_classes = (base.MayRead,)

    @extend_schema(
        operation_id="tokens_list",
        responses={200: TokenSerializer(many=True)} | base.PROBLEMS,
    )
    def get(self, request: Request) -> Response:
        """List the own account and its token; for admins all accounts."""
        who = _person(request)
        shown = [each for each in queries.accounts() if who.is_admin or each.name == who.name]
        return Response(TokenSerializer(shown, many=True).data)

    @extend_schema(
        request=NewTokenSerializer, responses={201: CreatedTokenSerializer} | base.PROBLEMS
    )
    def post(self, request: Request) -> Response:
        """Create the token of the own account; the one before ends, also if it sent the request."""
        base.values(NewTokenSerializer, request.data)
        who = _person(request)
        token = actions.create_token(who.name, actor=who.name)
        created = {"account": who.name, "token": token}
        return Response(CreatedTokenSerializer(created).data, status=201)


class OneTokenView(base.RestView):
    """The token of one account."""

    permission_classes = (base.MayRead,)

    @extend_schema(responses={204: None} | base.PROBLEMS)
    def delete(self, request: Request, account: str) -> Response:
        """End the token of an account: the own one, for admins any; without one nothing changes."""
        who = _person(request)
        if account != who.name and not who.is_admin:
            raise PermissionDenied(NOT_AN_ADMIN)
        actions.revoke_token(account, actor=who.name)
        return Response(status=204)


def _person(request: Request) -> Person:
    who = person(request.user)
    assert who is not None  # by the permission
    return who
