"""Pauses of an instance, task time-outs, thread counts: mostly specific to Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.adapters.streams_deserialization_and_processing import check_excluded
from tests.conformance.cases import Case, Form

IGNORED: dict[str, str] = {}


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_exception(case: Case) -> None:
    """The platform handles these exceptions; they raise to it, and no handler is called."""
    called = case.expect["handler_called"]
    check_excluded(case.given["exception"], called=called, raises=not called)


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.exception", "expect.handler_called"): check_exception
}
