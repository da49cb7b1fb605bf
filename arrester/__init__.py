"""Arrester: the error control plane for PySpark.

The names of the agent are imported on first use, so that the server runs without PySpark and an
agent without Django.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arrester.agents import (
        CONTINUE,
        FAIL,
        PAUSE,
        RETRY,
        Agent,
        Ending,
        ErrorContext,
        Handler,
        InvalidConfiguration,
        InvalidFrame,
        LogAndContinue,
        LogAndFail,
        LogAndPause,
        LogicalTypeMismatch,
        Record,
        RecordError,
        Response,
        ResumeHow,
        SchemaFolder,
        SchemaRegistry,
        SchemaRegistryUnavailable,
        StartRefused,
        UncaughtAnswer,
        UnknownSchemaId,
        dead_letters_from_kafka,
    )

__all__ = [
    "CONTINUE",
    "FAIL",
    "PAUSE",
    "RETRY",
    "Agent",
    "Ending",
    "ErrorContext",
    "Handler",
    "InvalidConfiguration",
    "InvalidFrame",
    "LogAndContinue",
    "LogAndFail",
    "LogAndPause",
    "LogicalTypeMismatch",
    "Record",
    "RecordError",
    "Response",
    "ResumeHow",
    "SchemaFolder",
    "SchemaRegistry",
    "SchemaRegistryUnavailable",
    "StartRefused",
    "UncaughtAnswer",
    "UnknownSchemaId",
    "dead_letters_from_kafka",
]
__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Import a public name of the agent on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'arrester' has no attribute {name!r}")
    value: object = getattr(import_module("arrester.agents"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
