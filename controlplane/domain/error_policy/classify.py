"""What kind of failure an exception is: self-healing, fatal, retriable, or one record's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from arrester.controlplane.domain.error_policy import exception_identity, failure_classes
from arrester.controlplane.domain.error_policy.exception_identity import Cause, known_as


class Kind(StrEnum):
    """What a class of exceptions means for what happens next."""

    #: The platform repairs it by itself; not our business, no handler.
    SELF_HEALING = "SELF_HEALING"
    #: It will hit every record; FAIL at once, no handler.
    FATAL = "FATAL"
    #: Trying again may help.
    RETRIABLE = "RETRIABLE"
    #: Anything else: this record's failure.
    OTHER = "OTHER"


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of a class of exceptions, and why it is of this kind."""

    kind: Kind
    reason: str
    #: The kind where `send` itself raised it, instead of a future or callback telling of it.
    immediate: Kind | None = None


OTHER = Ruling(kind=Kind.OTHER, reason="one record's failure")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rulings by the full dotted name of a class, or by a Spark error condition."""

    rulings: Mapping[str, Ruling]

    def classify(self, cause: Cause, *, immediate: bool = False) -> Ruling:
        """Return the ruling for the most specific thing known: condition, class, nearest base."""
        name = known_as(cause, self.rulings)
        if name is None:
            return OTHER
        ruling = self.rulings[name]
        if immediate and ruling.immediate is not None:
            return Ruling(kind=ruling.immediate, reason=failure_classes.FULL_BUFFER)
        return ruling

    def extended(self, kind: Kind, names: tuple[str, ...]) -> Table:
        """Return the table with `names` ruled to be of `kind`, whatever it said of them before."""
        ruling = Ruling(kind=kind, reason="configured")
        return Table(rulings={**self.rulings, **dict.fromkeys(names, ruling)})


def _default_table() -> Table:
    rulings: dict[str, Ruling] = {}
    for kind, rows in (
        (Kind.RETRIABLE, failure_classes.RETRIABLE),
        (Kind.FATAL, failure_classes.FATAL),
        (Kind.SELF_HEALING, failure_classes.SELF_HEALING),
    ):
        for reason, names in rows.items():
            rulings |= dict.fromkeys(names, Ruling(kind=kind, reason=reason))
    timeout = Ruling(kind=Kind.RETRIABLE, reason="time-out", immediate=Kind.FATAL)
    return Table(rulings=rulings | dict.fromkeys(failure_classes.TIMEOUTS_OF_SEND, timeout))


DEFAULT_TABLE = _default_table()


def describe(exception: BaseException) -> Cause:
    """Return what is known of an exception, wrappers looked through."""
    return exception_identity.describe(exception, failure_classes.WRAPPERS)


def unwrapped(chain: Sequence[Cause]) -> Cause:
    """Return what a chain of causes is, the outermost first, wrappers looked through."""
    return exception_identity.unwrapped(chain, failure_classes.WRAPPERS)
