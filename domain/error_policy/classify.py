"""Classify an exception: self-healing, fatal, retriable, or other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from arrester.domain.error_policy import (
    exception_identity,
    failure_classes,
    sqlstates,
)
from arrester.domain.error_policy.exception_identity import Cause, known_as
from arrester.domain.python_versions import StrEnum


class Kind(StrEnum):
    """The kinds of exceptions."""

    #: The platform repairs it by itself; no handler is called.
    SELF_HEALING = "SELF_HEALING"
    #: It affects every record; FAIL at once, no handler is called.
    FATAL = "FATAL"
    #: A further attempt may succeed.
    RETRIABLE = "RETRIABLE"
    #: Any other exception: the failure of one record.
    OTHER = "OTHER"


class Classification(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of a class of exceptions, and the reason."""

    kind: Kind
    reason: str
    #: The kind if `send` itself raised it, not a future or callback.
    immediate: Kind | None = None


OTHER = Classification(kind=Kind.OTHER, reason="one record's failure")
#: The name of a cause whose SQLSTATE is fatal, and which depends on the row: see `of_row`.
_REFUSED_ROW = "arrester.RefusedRow"
_CONFIGURED = "configured"


def of_row(cause: Cause) -> Cause:
    """Return the cause of a row that a database refuses while it accepts others.

    A SQLSTATE that is fatal by default, such as that of a missing right, is not fatal then.
    """
    return replace(cause, names=tuple(dict.fromkeys((*cause.names, _REFUSED_ROW))))


class ClassificationTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rulings by the full dotted name of a class, or by a Spark error condition."""

    classifications: Mapping[str, Classification]

    def classify(self, cause: Cause, *, immediate: bool = False) -> Classification:
        """Return the ruling of the most specific known name: condition, class, nearest base."""
        name = known_as(cause, self.classifications)
        if name is None:
            return OTHER
        classification = self.classifications[name]
        if _REFUSED_ROW in cause.names and _may_be_of_row(name, classification):
            return OTHER
        if immediate and classification.immediate is not None:
            return Classification(kind=classification.immediate, reason=failure_classes.FULL_BUFFER)
        return classification

    def may_be_of_row(self, cause: Cause) -> bool:
        """Whether the cause is fatal unless a row is found that it depends on."""
        name = known_as(cause, self.classifications)
        return name is not None and _may_be_of_row(name, self.classifications[name])

    def extended(self, kind: Kind, names: tuple[str, ...]) -> ClassificationTable:
        """Return the table with `names` classified as `kind`, replacing earlier rulings."""
        classification = Classification(kind=kind, reason=_CONFIGURED)
        return ClassificationTable(
            classifications={**self.classifications, **dict.fromkeys(names, classification)}
        )


def _may_be_of_row(name: str, classification: Classification) -> bool:
    return name in sqlstates.FATAL and classification.reason != _CONFIGURED


def _default_table() -> ClassificationTable:
    classifications: dict[str, Classification] = {}
    for kind, rows in (
        (Kind.RETRIABLE, failure_classes.RETRIABLE),
        (Kind.FATAL, failure_classes.FATAL),
        (Kind.SELF_HEALING, failure_classes.SELF_HEALING),
    ):
        for reason, names in rows.items():
            classifications |= dict.fromkeys(names, Classification(kind=kind, reason=reason))
    classifications |= dict.fromkeys(failure_classes.OF_RECORD, OTHER)
    timeout = Classification(kind=Kind.RETRIABLE, reason="time-out", immediate=Kind.FATAL)
    return ClassificationTable(
        classifications=classifications | dict.fromkeys(failure_classes.TIMEOUTS_OF_SEND, timeout)
    )


DEFAULT_TABLE = _default_table()


def describe(exception: BaseException) -> Cause:
    """Return the identity of an exception, inside its wrappers."""
    return exception_identity.describe(exception, failure_classes.WRAPPERS)


def unwrapped(chain: Sequence[Cause]) -> Cause:
    """Return the identity of a chain of causes, the outermost first, inside its wrappers."""
    return exception_identity.unwrapped(chain, failure_classes.WRAPPERS)
