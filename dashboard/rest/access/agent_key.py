"""REST: the public key that agents verify the server with."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import signing
from arrester.dashboard.rest import base
from arrester.dashboard.rest.problems import PROBLEMS


class AgentKeySerializer(serializers.Serializer[Any]):
    """The public key of the server."""

    key = serializers.CharField(help_text="ARRESTER_SERVER_KEY for the environment of the drivers.")


class AgentKeyView(base.RestView):
    """The public key of the server."""

    @extend_schema(responses={200: AgentKeySerializer} | PROBLEMS)
    def get(self, request: Request) -> Response:
        """Return the public key with which agents verify commands, states and confirmations."""
        return Response(AgentKeySerializer({"key": signing.public_key()}).data)
