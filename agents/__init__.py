"""Arrester's agent: guard a PySpark pipeline, decide about failed records, answer operators."""

from __future__ import annotations

from arrester.agents.agent import Agent
from arrester.agents.dead_letters.read_topic import dead_letters_from_kafka
from arrester.agents.handlers import (
    CONTINUE,
    FAIL,
    PAUSE,
    RETRY,
    ErrorContext,
    Handler,
    LogAndContinue,
    LogAndFail,
    LogAndPause,
    Record,
    RecordError,
)
from arrester.agents.runtime.instance import Ending
from arrester.agents.schema_registry.errors import (
    InvalidFrame,
    LogicalTypeMismatch,
    SchemaRegistryUnavailable,
    UnknownSchemaId,
)
from arrester.agents.schema_registry.registry import SchemaFolder, SchemaRegistry
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidConfiguration, StartRefused
from arrester.domain.events import ResumeHow
from arrester.domain.state.uncaught_policy import UncaughtAnswer

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
