"""What kind of failure an exception is: self-healing, fatal, retriable, or one record's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from controlplane.domain import failure_table


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


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an exception: full names, of its class first and then of the bases."""

    names: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    #: Spark's error condition, where there is one.
    condition: str | None = None


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of a class of exceptions, and why it is of this kind."""

    kind: Kind
    reason: str
    #: The kind where `send` itself raised it, instead of a future or callback telling of it.
    immediate: Kind | None = None


#: A chain of causes longer than this is a loop.
CHAIN_LIMIT = 20
OTHER = Ruling(kind=Kind.OTHER, reason="one record's failure")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rulings by the full dotted name of a class, or by a Spark error condition."""

    rulings: Mapping[str, Ruling]

    def classify(self, cause: Cause, *, immediate: bool = False) -> Ruling:
        """Return the ruling for the most specific thing known: condition, class, nearest base."""
        for name in (*_conditions(cause.condition), *cause.names):
            ruling = self.rulings.get(name)
            if ruling is not None and immediate and ruling.immediate is not None:
                return Ruling(kind=ruling.immediate, reason=failure_table.FULL_BUFFER)
            if ruling is not None:
                return ruling
        return OTHER

    def extended(self, kind: Kind, names: tuple[str, ...]) -> Table:
        """Return the table with `names` ruled to be of `kind`, whatever it said of them before."""
        ruling = Ruling(kind=kind, reason="configured")
        return Table(rulings={**self.rulings, **dict.fromkeys(names, ruling)})


def _conditions(condition: str | None) -> Iterator[str]:
    """Yield the condition, then what it is a sub-condition of: A.B is an A."""
    while condition:
        yield condition
        condition = condition.rpartition(".")[0]


def describe(exception: BaseException) -> Cause:
    """Return what can be known of an exception without importing where it comes from.

    A Kafka client's exception is named by its error code first: it says more than the class. An
    exception of the JVM is known by its chain of causes, which needs the JVM: see `unwrapped`.
    """
    chain: list[Cause] = []
    link: BaseException | None = exception
    while link is not None and len(chain) < CHAIN_LIMIT:
        chain.append(Cause(names=tuple(_names(link)), condition=_condition(link)))
        link = link.__cause__
    return unwrapped(chain)


def unwrapped(chain: Sequence[Cause]) -> Cause:
    """Return what a chain of causes, the outermost first, is: wrappers are looked through.

    What is wrapped decides; a wrapper's own condition and class are asked when that is unknown.
    """
    opened = 1
    while opened < len(chain) and chain[opened - 1].names[0] in failure_table.WRAPPERS:
        opened += 1
    inner = chain[:opened][::-1]
    names = dict.fromkeys(name for cause in inner for name in cause.names)
    conditions = [cause.condition for cause in inner if cause.condition is not None]
    return Cause(names=tuple(names), condition=conditions[0] if conditions else None)


def _names(exception: BaseException) -> Iterator[str]:
    yield from _kafka_codes(exception)
    for base in type(exception).__mro__:
        if base is not object:
            yield _name(base)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _kafka_codes(exception: BaseException) -> Iterator[str]:
    """Yield the name of the error that a confluent_kafka.KafkaException carries."""
    error = exception.args[0] if exception.args else None
    name = getattr(error, "name", None)
    if error is not None and type(error).__name__ == "KafkaError" and callable(name):
        yield f"{failure_table.CONFLUENT}{name()}"


def _condition(exception: BaseException) -> str | None:
    """Return the error condition of a PySpark exception, whose newest versions call it so."""
    for method in ("getCondition", "getErrorClass"):
        ask = getattr(exception, method, None)
        if callable(ask):
            found = ask()
            return found if isinstance(found, str) else None
    return None


def _default_table() -> Table:
    rulings: dict[str, Ruling] = {}
    for kind, rows in (
        (Kind.RETRIABLE, failure_table.RETRIABLE),
        (Kind.FATAL, failure_table.FATAL),
        (Kind.SELF_HEALING, failure_table.SELF_HEALING),
    ):
        for reason, names in rows.items():
            rulings |= dict.fromkeys(names, Ruling(kind=kind, reason=reason))
    timeout = Ruling(kind=Kind.RETRIABLE, reason="time-out", immediate=Kind.FATAL)
    return Table(rulings=rulings | dict.fromkeys(failure_table.TIMEOUTS_OF_SEND, timeout))


DEFAULT_TABLE = _default_table()
