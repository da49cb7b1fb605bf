"""Arrester's agent: guard a PySpark pipeline, decide about failed records, answer operators."""

from __future__ import annotations

from agents.agent import Agent
from agents.handlers import (
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
from agents.lifecycle import Ending
from controlplane.domain.errors import ApplicationLatched, InvalidConfiguration
from controlplane.domain.events import ResumeHow
from controlplane.domain.policy import Answer as Response
from controlplane.domain.uncaught import UncaughtAnswer

__all__ = [
    "CONTINUE",
    "FAIL",
    "PAUSE",
    "RETRY",
    "Agent",
    "ApplicationLatched",
    "Ending",
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
    "UncaughtAnswer",
]
