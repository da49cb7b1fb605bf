"""What the OpenAPI document requires of requests: no unknown names, no blank texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_REFERENCE = "#/components/schemas/"


def describe(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Refuse unknown names and blank texts in requests, and allow blank texts in responses.

    drf-spectacular gives each component texts that are not blank, as requests have them.
    """
    schemas = result["components"]["schemas"]
    operations = [each for path in result["paths"].values() for each in path.values()]
    of_responses = _reachable(schemas, [each["responses"] for each in operations])
    of_requests = _reachable(schemas, [each.get("requestBody", {}) for each in operations])
    for name in of_responses:
        for part in _parts(schemas[name]):
            if part.get("minLength") == 1:
                del part["minLength"]
    _refuse_blank([each.get("parameters", []) for each in operations])
    for name in of_requests - of_responses:
        _refuse_blank(schemas[name])
        if schemas[name].get("type") == "object":
            schemas[name].setdefault("additionalProperties", False)
    return result


def _refuse_blank(part: Any) -> None:
    """Require a character other than white space in each text that has a minimal length."""
    for each in _parts(part):
        if each.get("minLength") == 1:
            each.setdefault("pattern", r"\S")


def _reachable(schemas: dict[str, Any], parts: list[Any]) -> set[str]:
    """Return the names of the components that parts of the document refer to."""
    found: set[str] = set()
    while parts:
        names = _references(parts.pop()) - found
        found |= names
        parts += [schemas[name] for name in names]
    return found


def _references(part: Any) -> set[str]:
    return {
        each["$ref"].removeprefix(_REFERENCE)
        for each in _parts(part)
        if isinstance(each.get("$ref"), str)
    }


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a part of the document."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, dict | list):
            yield from _parts(inner)
