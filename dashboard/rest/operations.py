"""How the OpenAPI document describes an endpoint, and the tokens.

Each endpoint has its module as tag, and an operation id for generated clients: `tasks_list`,
`tasks_retrieve`, `tokens_create`, `tokens_destroy`; an act is named by its path, `commands_cancel`.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from arrester.controlplane.web.problem_details import PREFIX

#: The resources of modules with another name.
_RESOURCES = {
    "agent_key": "agents", "error_groups": "errors", "failure_series": "failures", "page": "feed",
    "parquet": "feed",
    "redrives": "dead-letters", "stream": "feed", "subscriptions": "event-subscriptions",
}  # fmt: skip


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The description of our tokens."""

    target_class = "arrester.dashboard.rest.authentication.RestTokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """Return the security scheme."""
        return {"type": "http", "scheme": "bearer"}


class Operation(AutoSchema):
    """The description of an endpoint."""

    def get_tags(self) -> list[str]:
        """Return the resource: the module of the view."""
        module = type(self.view).__module__.rpartition(".")[2]
        return [_RESOURCES.get(module, module.replace("_", "-"))]

    def get_operation_id(self) -> str:
        """Return the name of a function in generated clients."""
        parts = self.path.removeprefix(PREFIX).split("/")
        name = "_".join(part for part in parts if part and not part.startswith("{"))
        name = name.replace("-", "_")
        match self.method:
            case "GET":
                return f"{name}_list" if hasattr(self.view, "find") else f"{name}_retrieve"
            case "DELETE":
                return f"{name}_destroy"
        responses: Any = self.get_response_serializers()
        creates = len(parts) == 1 and 201 in responses
        return f"{name}_create" if creates else name
