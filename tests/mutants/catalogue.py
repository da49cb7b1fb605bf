"""The deliberate faults of `mutants.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault: a text of a module that occurs once, what replaces it, and who detects it."""

    name: str
    file: str
    find: str
    replace: str
    #: Arguments for pytest: files or test ids.
    tests: list[str]

    def applied_to(self, text: str) -> str:
        """Return the module with the fault.

        Raises ValueError unless the text to replace occurs exactly once.
        """
        found = text.count(self.find)
        if found != 1:
            raise ValueError(f"mutant {self.name!r}: {self.file} has the text {found} times, not 1")
        return text.replace(self.find, self.replace)


def mutants() -> list[Mutant]:
    """Return all faults."""
    text = Path(__file__).with_name("mutants.toml").read_text()
    return msgspec.convert(tomllib.loads(text)["mutant"], list[Mutant])
