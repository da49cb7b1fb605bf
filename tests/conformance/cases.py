"""Read the conformance cases, their two lists of exceptions, and their forms."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).parent
OURS = HERE / "vectors"
#: The same command runs other cases of the same suites.
FOLDER = Path(os.environ.get("CONFORMANCE_VECTORS") or OURS)

Json = Any  # each suite has its own types
T = TypeVar("T")
#: Fields that a case must have, as "given.name" or "expect.name"; "expect.name~text" also requires
#: that the value contains the text.
Form = tuple[str, ...]


class MissingField(KeyError):
    """A check reads a field that the case does not have."""

    __str__ = Exception.__str__


class Fields(Mapping[str, Json]):
    """The fields of `given` or `expect`. It records which of them a check reads."""

    def __init__(self, values: Mapping[str, Json], name: str) -> None:
        self._values, self._name = values, name
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Json:
        if key not in self._values:
            raise MissingField(f"{self._name} has no field {key!r}; it has {sorted(self._values)}")
        self.read.add(key)
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def ignore(self) -> None:
        """Mark all fields as read."""
        self.read.update(self)

    def unread(self, ignored: Collection[str]) -> list[str]:
        return [f"{self._name}.{key}" for key in self if key not in {*self.read, *ignored}]

    def shows(self, element: str) -> bool:
        """Return whether the fields have one element of a form; a text reads the field."""
        name, _, text = element.partition("~")
        side, _, key = name.partition(".")
        if side != self._name or key not in self:
            return False
        return not text or text in str(self[key])


class Known(dict[str, T]):
    """A table of the words that an adapter knows; any other word is an error that lists them."""

    def __missing__(self, word: str) -> T:
        raise AssertionError(f"unknown word {word!r}; known: {sorted(self)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A behaviour: the situation and the expected result."""

    suite: str
    id: str
    given: Json
    expect: Json
    recommended: Json = None

    @property
    def name(self) -> str:
        return f"{self.suite}/{self.id}"

    def has(self, form: Form) -> bool:
        return all(self.given.shows(each) or self.expect.shows(each) for each in form)

    def choose(self, checks: Mapping[Form, T]) -> T:
        """Return the check of the first form that the case has."""
        for form, check in checks.items():
            if self.has(form):
                return check
        raise AssertionError(
            f"no check for given {sorted(self.given)}, expect {sorted(self.expect)};"
            f" known forms: {[' + '.join(form) for form in checks]}"
        )

    def run(self, check: Callable[[], None], ignored: Collection[str]) -> None:
        """Run the check; report fields that it neither reads nor ignores, and unknown words."""
        try:
            check()
        except (KeyError, ValueError) as error:
            raise AssertionError(f"{self.name}: {type(error).__name__}: {error}") from error
        except AssertionError as error:
            error.add_note(self.name)
            raise
        unread = [*self.given.unread(ignored), *self.expect.unread(ignored)]
        read = sorted({*self.given.read, *self.expect.read, *ignored})
        assert not unread, f"{self.name}: no check reads {unread}; known fields: {read}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A listed exception: the cases of a suite with matching ids, or of a form."""

    suite: str
    why: str
    id: str = ".*"
    form: Form = ()
    expect: Json = None
    #: Fields that replace those of the case, also within tables; the others stay.
    changes: Json = None

    @property
    def name(self) -> str:
        return f"{self.suite}/{' + '.join(self.form) or self.id}"

    def fits(self, case: Case) -> bool:
        return (
            self.suite == case.suite
            and re.fullmatch(self.id, case.id) is not None
            and case.has(self.form)
        )


def read(folder: Path) -> Iterator[Case]:
    """Yield the cases of a folder."""
    for file in sorted(folder.glob("*.json")):
        suite = json.loads(file.read_text())
        for case in suite["cases"]:
            yield Case(
                suite=suite["suite"],
                id=case["id"],
                given=Fields(case["given"], "given"),
                expect=Fields(case["expect"], "expect"),
                recommended=case.get("recommended"),
            )


@cache
def not_applicable() -> tuple[Entry, ...]:
    """Return the cases that have no meaning on Spark, with the reason."""
    return _entries("not_applicable.toml", "reason")


@cache
def decided() -> tuple[Entry, ...]:
    """Return the cases that a decision of ours overrules, with its row and our expectation."""
    return _entries("decided.toml", "row")


def _entries(file: str, why: str) -> tuple[Entry, ...]:
    rows: Iterable[dict[str, Json]] = tomllib.loads((HERE / file).read_text())["case"]
    return tuple(Entry(why=row.pop(why), form=tuple(row.pop("form", ())), **row) for row in rows)


def has_meaning(case: Case) -> bool:
    """Return whether the case states something about Spark."""
    return not any(entry.fits(case) for entry in not_applicable())


def _merged(theirs: Mapping[str, Json], ours: Mapping[str, Json]) -> dict[str, Json]:
    merged = dict(theirs)
    for name, value in ours.items():
        table = isinstance(value, dict) and name in merged
        merged[name] = _merged(merged[name], value) if table else value
    return merged


def as_decided(case: Case) -> Case:
    """Return the case with our expectation if a decision overrules its own."""
    for entry in decided():
        if entry.fits(case):
            ours = entry.expect or _merged(case.expect, entry.changes)
            return replace(case, expect=Fields(ours, "expect"))
    return case
