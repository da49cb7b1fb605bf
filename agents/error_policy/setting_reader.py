"""Read settings one after the other and collect their faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from arrester.domain.error_policy import setting_definitions as keys
from arrester.domain.error_policy.setting_types import Key
from arrester.domain.errors import InvalidValue

T = TypeVar("T")


@dataclass(slots=True)
class SettingReader:
    """Read one setting after the other and collect the faults."""

    given: Mapping[str, object]
    faults: list[InvalidValue] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = sorted(keys.KEYS | keys.ALIASES)
        prefixes = (keys.DLQ_OPTIONS, keys.DLQ_PRODUCER)
        for name in self.given:
            if name in keys.KEYS or name in keys.ALIASES or name.startswith(prefixes):
                continue
            suggestion = "".join(get_close_matches(name, known, n=1))
            hint = f"did you mean {suggestion}? " if suggestion else ""
            nearest = ", ".join(get_close_matches(name, known, n=3, cutoff=0.0))
            allowed = f"{hint}the documented keys; the nearest are {nearest}"
            self.faults.append(InvalidValue("errors", name, allowed))

    def key(self, key: Key[T]) -> T:
        """Return the key's value under its current name, Connect's, or a former one."""
        values = {
            name: self._parse(key, name)
            for name in (key.name, key.connect_name, key.former_name)
            if name is not None and name in self.given
        }
        if not values:
            return key.default
        if key.connect_name is not None:
            self.check_agreement(key.name, key.connect_name, same=len(set(values.values())) == 1)
        return next(iter(values.values()))

    def _parse(self, key: Key[T], name: str) -> T:
        value = self.given[name]
        try:
            return key.parse(value)
        except (ValueError, TypeError):
            self.faults.append(InvalidValue(name, value, key.allowed))
            return key.default

    def settings_under(self, prefix: str) -> dict[str, object]:
        """Return the settings under a prefix, without the prefix."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.given.items()
            if name.startswith(prefix) and name != prefix
        }

    def valid_names(self, key: Key[T]) -> list[str]:
        """Return the name under which a key was given with a valid, non-empty value."""
        invalid = {fault.name for fault in self.faults}
        names = (key.name, key.connect_name)
        return [name for name in names if name and self.given.get(name) and name not in invalid][:1]

    def first_name_under(self, prefix: str) -> list[str]:
        """Return the first name that was given under a prefix."""
        return [f"{prefix}{name}" for name in self.settings_under(prefix)][:1]

    def check_agreement(self, name: str, other: str, *, same: bool) -> None:
        """Record a fault if two keys were both given with different values."""
        both_valid = {name, other} <= self.given.keys() - {fault.name for fault in self.faults}
        if both_valid and not same:
            allowed = f"the meaning of {other}={self.given[other]!r}, or only one of the two keys"
            self.faults.append(InvalidValue(name, self.given[name], allowed))
