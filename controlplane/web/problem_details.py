"""The form of an error of REST, as RFC 9457 describes it."""

from __future__ import annotations

from typing import Any

#: With what the paths of REST begin.
PREFIX = "/api/v1/"
MEDIA_TYPE = "application/problem+json"


def problem(status: int, code: str, title: str, detail: str) -> dict[str, Any]:
    """Return the members that each error has."""
    return {
        "type": f"urn:arrester:problem:{code}",
        "title": title,
        "status": status,
        "detail": encodable(detail),
        "code": code,
    }


def encodable(text: str) -> str:
    """Return a text without unpaired surrogates."""
    return text.encode(errors="backslashreplace").decode()
