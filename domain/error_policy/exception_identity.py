"""The identity of an exception: names of classes, a condition, an error code. No imports.

The executors run this file too, so it needs only the standard library.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: A longer chain of causes is a loop.
CHAIN_LIMIT = 20
#: Conditions of Spark are longer.
_SQLSTATE_LENGTH = 5
CONFLUENT = "confluent_kafka.KafkaError."
#: Spark's condition of a text that a parser cannot read. Its cause may be an INTERNAL_ERROR, or any
#: exception of the parser's library.
_MALFORMED_RECORD = "MALFORMED_RECORD_IN_PARSING"
#: Conditions of Spark that give no reason. Their cause has it.
_WITHOUT_REASON = frozenset(
    {
        *("FAILED_EXECUTE_UDF", "FAILED_READ_FILE", "INTERNAL_ERROR", "STREAM_FAILED"),
        *("TASK_WRITE_FAILED", f"{_MALFORMED_RECORD}.WITHOUT_SUGGESTION"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The identity of an exception: the full name of its class, then of its bases."""

    names: tuple[str, ...]
    #: Spark's error condition, or the SQLSTATE of a database, if there is one.
    condition: str | None = None


def known_as(cause: Cause, known: Container[str]) -> str | None:
    """Return the most specific of the `known` names: condition, class, nearest base."""
    names = (*_conditions(cause.condition), *cause.names)
    return next((name for name in names if name in known), None)


def _conditions(condition: str | None) -> Iterator[str]:
    """Yield the condition, then its parents: A.B is an A, and SQLSTATE 23505 is a 23."""
    if condition and len(condition) == _SQLSTATE_LENGTH and condition.isalnum():
        yield from (condition, condition[:2])
        return
    while condition:
        yield condition
        condition = condition.rpartition(".")[0]


def linked(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and those that it was raised from or during; a loop of them ends."""
    link: BaseException | None = exception
    for _ in range(CHAIN_LIMIT):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def describe(exception: BaseException, wrappers: Container[str] = ()) -> Cause:
    """Return the identity of an exception without importing its package.

    The error code of a Kafka client's exception comes first: it is more specific than the class.
    The chain of causes of a JVM exception needs the JVM: see `unwrapped`.
    """
    chain: list[Cause] = []
    link: BaseException | None = exception
    while link is not None and len(chain) < CHAIN_LIMIT:
        chain.append(Cause(names=tuple(_names(link)), condition=_condition(link)))
        link = link.__cause__
    return unwrapped(chain, wrappers)


def unwrapped(chain: Sequence[Cause], wrappers: Container[str]) -> Cause:
    """Return the identity of a chain of causes, the outermost first, inside its wrappers.

    The wrapped exception decides; the wrapper's own condition and class are used if it is unknown.
    """
    opened = 1
    while opened < len(chain) and _is_wrapper(chain[opened - 1], wrappers):
        opened += 1
    inner = chain[:opened][::-1]
    names = dict.fromkeys(name for cause in inner for name in cause.names)
    conditions = [cause.condition for cause in inner if cause.condition is not None]
    return Cause(names=tuple(names), condition=conditions[0] if conditions else None)


def innermost(chain: Sequence[Cause]) -> Cause | None:
    """Return the cause of a chain that has the reason, None if its first exception has it.

    That is the innermost one whose condition gives a reason, or else the innermost one. Of causes
    of one family, such as DateTimeParseException by DateTimeException, it is the most specific.
    """
    specific = [
        each
        for outer, each in pairwise([Cause(names=()), *chain])
        if each.names[0] not in outer.names
    ]
    found = next((each for each in reversed(chain) if _has_reason(each.condition)), specific[-1])
    is_first = found is chain[0] or found.condition == chain[0].condition is not None
    return None if is_first else found


def _has_reason(condition: str | None) -> bool:
    if condition is None or condition == _MALFORMED_RECORD:
        return False
    return _WITHOUT_REASON.isdisjoint(_conditions(condition))


def _is_wrapper(cause: Cause, wrappers: Container[str]) -> bool:
    return cause.names[0] in wrappers and _MALFORMED_RECORD not in _conditions(cause.condition)


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
    if error is not None and type(error).__name__ == "KafkaError":
        name = _result_of(error, "name")
        if name is not None:
            yield f"{CONFLUENT}{name}"


def _condition(exception: BaseException) -> str | None:
    """Return the error condition of a PySpark exception; 3.5 calls it error class."""
    # From 4.0 on, the old method warns.
    return _result_of(
        exception, "getCondition" if hasattr(exception, "getCondition") else "getErrorClass"
    )


def _result_of(thing: object, method: str) -> str | None:
    """Return the result of a method as text; a foreign method may raise."""
    try:
        method_ = getattr(thing, method, None)
        result = method_() if callable(method_) else None
    except Exception:
        return None
    return result if isinstance(result, str) else None
