"""REST: the tokens of accounts, with the permissions of the page Settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.controlplane.access import Person
from arrester.controlplane.access.roles import TokenScope
from arrester.controlplane.actions.access import tokens
from arrester.controlplane.models import RestToken
from arrester.dashboard.permissions import check_token, tokens_of, visible_applications
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.struct_serializers import FilterSerializer
from arrester.domain.errors import NotFound


class TokenSerializer(serializers.Serializer[Any]):
    """A token of an account, without its text."""

    id = serializers.IntegerField()
    account = serializers.CharField(source="user.username")
    name = serializers.CharField()
    scope = serializers.ChoiceField(field_types.choices(TokenScope))
    applications = serializers.SerializerMethodField(
        help_text="What it may see and act on; null: all that the account may."
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True, help_text="Null: never.")
    last_used_at = serializers.DateTimeField(
        allow_null=True, help_text="Exact to a minute; null: not used yet."
    )

    @extend_schema_field(serializers.ListField(child=serializers.CharField(), allow_null=True))
    def get_applications(self, token: RestToken) -> list[str] | None:
        """Return the applications of the token that the account of the request may see."""
        return visible_applications(self.context["who"], token)


class NewTokenSerializer(serializers.Serializer[Any]):
    """A new token of the account of the request."""

    name = serializers.CharField(help_text="Unique among the tokens of the account.")
    scope = field_types.ListedChoiceField(
        field_types.choices(TokenScope),
        default=TokenScope.READ.value,
        help_text="`read` refuses everything that changes something.",
    )
    applications = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        min_length=1,
        max_length=tokens.APPLICATIONS_MAX,
        error_messages=dict.fromkeys(
            ("min_length", "max_length"),
            f"1 to {tokens.APPLICATIONS_MAX} names, or null for all that the account may see",
        ),
        default=None,
        help_text="What it may see and act on at most; null: all that the account may.",
    )
    days = serializers.IntegerField(
        default=tokens.DAYS,
        allow_null=True,
        min_value=1,
        max_value=tokens.DAYS_MAX,
        error_messages=dict.fromkeys(
            ("invalid", "min_value", "max_value"),
            f"a whole number from 1 to {tokens.DAYS_MAX}; for admins null, too",
        ),
        help_text="After which it expires. Null: never, for admins only.",
    )


class CreatedTokenSerializer(TokenSerializer):
    """A new token: only this response has its text."""

    token = serializers.CharField()


class TokensView(base.ListView):
    """The tokens."""

    permission_classes = (base.MayRead,)
    query = FilterSerializer
    row = TokenSerializer

    def find(self) -> queries.Page[RestToken]:
        """List the tokens of the own account; for admins of all accounts. All are on one page.

        A token with a list of applications sees those with no more than its own.
        """
        return queries.Page(rows=tuple(tokens_of(_person(self.request))), next=None)

    def context(self, rows: Sequence[Any], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the person of the request."""
        return {"who": _person(self.request)}

    @extend_schema(request=NewTokenSerializer, responses={201: CreatedTokenSerializer} | PROBLEMS)
    def post(self, request: Request) -> Response:
        """Create a token of the own account."""
        given = base.values(NewTokenSerializer, request.data)
        who = _person(request)
        row, text = actions.create_token(
            who.name,
            given["name"],
            actor=who.name,
            scope=TokenScope(given["scope"]),
            days=given["days"],
            may_be_endless=who.is_admin,
            applications=given["applications"],
        )
        created = TokenSerializer(row, context={"who": who}).data | {"token": text}
        return base.at(Response(created, status=201), "api-token", row.id)


class OneTokenView(base.RestView):
    """One token."""

    permission_classes = (base.MayRead,)

    @extend_schema(responses={200: TokenSerializer} | PROBLEMS)
    def get(self, request: Request, id: int) -> Response:
        """Return a token that the list has."""
        who = _person(request)
        for token in tokens_of(who):
            if token.id == id:
                return Response(TokenSerializer(token, context={"who": who}).data)
        raise NotFound(f"there is no token {id}")

    @extend_schema(responses={204: None} | PROBLEMS)
    def delete(self, request: Request, id: int) -> Response:
        """Revoke a token that the list has: one of the own account, for admins any."""
        who = _person(request)
        check_token(who, id)
        actions.revoke_token(id, actor=who.name)
        return Response(status=204)


def _person(request: Request) -> Person:
    who = base.person_of(request)
    assert who is not None  # by the permission
    return who
