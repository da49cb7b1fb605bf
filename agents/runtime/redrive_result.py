"""The result of a redrive: how many dead letters are processed once more, and which are not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidDeadLetter:
    """A dead letter that was not redriven, and why."""

    id: str | None
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The result of a redrive."""

    #: The records that are processed once more.
    redriven: int
    #: Dead letters that an earlier redrive has taken; they are not taken again.
    taken_before: int
    #: Dead letters whose row does not fit the source.
    invalid: int
    #: The first of these.
    examples: tuple[InvalidDeadLetter, ...]
