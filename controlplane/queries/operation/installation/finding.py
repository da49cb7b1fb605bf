"""What a check of the installation has found."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, its value, and what to do."""

    check: Annotated[str, Meta(description="What was checked, such as `redis memory`.")]
    value: str
    level: Level = Level.OK
    advice: Annotated[str, Meta(description="What to do; empty if nothing.")] = ""


def warning(check: str, value: str, advice: str) -> Finding:
    """Return a finding of something that may become an error."""
    return Finding(check=check, value=value, level=Level.WARNING, advice=advice)


def error(check: str, value: str, advice: str) -> Finding:
    """Return a finding of something that does not work, or loses data."""
    return Finding(check=check, value=value, level=Level.ERROR, advice=advice)


def ok(check: str, value: str) -> Finding:
    """Return a finding of something that is as it should be."""
    return Finding(check=check, value=value)
