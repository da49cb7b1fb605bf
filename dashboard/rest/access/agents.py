"""REST: the credentials of agents, for admins of their applications."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.dashboard.rest import base
from arrester.dashboard.rest.problems import PROBLEMS
from arrester.dashboard.rest.struct_serializers import FilterSerializer, StructSerializer
from arrester.domain.errors import NotFound
from arrester.domain.identity.names import NAME, NAME_RULE


class AgentCredentialSerializer(StructSerializer):
    """A credential of an application's agents; nothing shows its password again."""

    class Meta:
        struct = queries.AgentCredential
        fields = ("id", "application", "user", "created_at", "actor")


class NewAgentCredentialSerializer(serializers.Serializer[Any]):
    """A credential for the agents of an application."""

    application = serializers.RegexField(f"^{NAME.pattern}$", error_messages={"invalid": NAME_RULE})


class AddedAgentCredentialSerializer(StructSerializer):
    """A new credential: only this response has its password, in the URL."""

    class Meta:
        struct = actions.NewAgentCredential
        fields = ("id", "application", "user", "redis_url", "server_key", "problem")


class RemovedAgentCredentialSerializer(serializers.Serializer[Any]):
    """A removed credential."""

    id = serializers.IntegerField()
    problem = serializers.CharField(
        help_text="Why Redis still accepts it; empty if it does not.", allow_blank=True
    )


class RemoveQuerySerializer(serializers.Serializer[Any]):
    """What is removed together with a credential."""

    delete_keys = serializers.BooleanField(
        default=False,
        help_text="Also delete what its agents have written into Redis, such as events that are not"
        " processed; only with the last credential of the application.",
    )


class AgentsView(base.ListView):
    """The credentials of agents."""

    permission_classes = (base.MayAdministrateAny,)
    query = FilterSerializer
    row = AgentCredentialSerializer

    def find(self) -> queries.Page[queries.AgentCredential]:
        """List the credentials of agents of the applications that the account manages.

        All are on one page.
        """
        return queries.Page(rows=tuple(_administered(self.request)))

    @extend_schema(
        request=NewAgentCredentialSerializer,
        responses={201: AddedAgentCredentialSerializer} | PROBLEMS,
    )
    def post(self, request: Request) -> Response:
        """Add a credential for the agents of an application; earlier ones stay valid."""
        wanted = base.values(NewAgentCredentialSerializer, request.data)
        new = actions.add_agent_credential(wanted["application"], actor=_name(request))
        added = Response(AddedAgentCredentialSerializer(new).data, status=201)
        return base.at(added, "api-agent", new.id)


class OneAgentView(base.RestView):
    """One credential of an agent."""

    permission_classes = (base.MayAdministrateAny,)

    @extend_schema(responses={200: AgentCredentialSerializer} | PROBLEMS)
    def get(self, request: Request, id: int) -> Response:
        """Return a credential that the list has."""
        for each in _administered(request):
            if each.id == id:
                return Response(AgentCredentialSerializer(each).data)
        raise NotFound(f"there is no credential {id}")

    @extend_schema(
        parameters=[RemoveQuerySerializer],
        responses={200: RemovedAgentCredentialSerializer} | PROBLEMS,
    )
    def delete(self, request: Request, id: int) -> Response:
        """Remove a credential, and end the connections of agents that use it."""
        wanted = base.values(RemoveQuerySerializer, request.query_params)
        problem = actions.remove_agent_credential(id, actor=_name(request), **wanted)
        removed = {"id": id, "problem": problem}
        return Response(RemovedAgentCredentialSerializer(removed).data)


def _administered(request: Request) -> list[queries.AgentCredential]:
    """Return the credentials of the applications that the account manages."""
    who = base.person_of(request)
    assert who is not None  # by the permission
    return [each for each in queries.agent_credentials() if who.administers(each.application)]


def _name(request: Request) -> str:
    return str(request.user.get_username())
