"""The cases of a folder of vectors, and what is written about them in our two lists."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OURS = HERE / "vectors"
#: Other cases in the same form are run by the same command.
FOLDER = Path(os.environ.get("CONFORMANCE_VECTORS") or OURS)

Json = Any  # what a case holds is the suite's affair


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fact: what is given, and what to expect of us."""

    suite: str
    id: str
    given: Json
    expect: Json
    recommended: Json = None

    @property
    def name(self) -> str:
        """The name that a test run shows."""
        return f"{self.suite}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is written about a case, or about all that a pattern of ids fits."""

    suite: str
    id: str
    why: str
    expect: Json = None

    def fits(self, case: Case) -> bool:
        """Whether the entry is about this case."""
        return self.suite == case.suite and re.fullmatch(self.id, case.id) is not None


def read(folder: Path) -> Iterator[Case]:
    """Yield the cases of a folder, suite by suite."""
    for file in sorted(folder.glob("*.json")):
        suite = json.loads(file.read_text())
        for case in suite["cases"]:
            yield Case(
                suite=suite["suite"],
                id=case["id"],
                given=case["given"],
                expect=case["expect"],
                recommended=case.get("recommended"),
            )


@cache
def not_applicable() -> tuple[Entry, ...]:
    """Return what has no meaning on Spark, with the reason."""
    rows = tomllib.loads((HERE / "not_applicable.toml").read_text())["case"]
    return tuple(Entry(suite=row["suite"], id=row["id"], why=row["reason"]) for row in rows)


@cache
def decided() -> tuple[Entry, ...]:
    """Return what a decision of ours overrules, with its row and our expectation."""
    rows = tomllib.loads((HERE / "decided.toml").read_text())["case"]
    return tuple(
        Entry(suite=row["suite"], id=row["id"], why=row["row"], expect=row["expect"])
        for row in rows
    )


def has_meaning(case: Case) -> bool:
    """Whether the case states something about Spark."""
    return not any(entry.fits(case) for entry in not_applicable())


def as_decided(case: Case) -> Case:
    """Return the case with our expectation where a decision overrules its own."""
    rulings = [entry.expect for entry in decided() if entry.fits(case)]
    return replace(case, expect=rulings[0]) if rulings else case
