"""Arrester's agent: guard a PySpark pipeline, decide about failed records, answer operators."""

from __future__ import annotations

from agents.config import InvalidConfiguration
from agents.handlers import (
    ErrorContext,
    Handler,
    LogAndContinue,
    LogAndFail,
    LogAndPause,
    Record,
    RecordError,
)
from controlplane.domain.errors import ApplicationLatched
from controlplane.domain.events import Response, ResumeHow

__all__ = [
    "ApplicationLatched",
    "ErrorContext",
    "Handler",
    "InvalidConfiguration",
    "LogAndContinue",
    "LogAndFail",
    "LogAndPause",
    "Record",
    "RecordError",
    "Response",
    "ResumeHow",
]
