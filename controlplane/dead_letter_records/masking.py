"""Mask fields of a record by name, at any depth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from arrester.domain.error_policy.setting_definitions import REDACTED_NAMES


def masked(value: Any, rules: Sequence[str], paths: list[str], path: str = "") -> Any:
    """Return a JSON value without the fields whose names match; add their paths to `paths`.

    A name matches if it contains one of the words that agents redact by default, or if a rule, a
    name or a pattern, is the whole name. A rule can also be the path of a field.
    """
    if isinstance(value, list):
        return [masked(each, rules, paths, path) for each in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for name, field in value.items():
        own = f"{path}.{name}" if path else name
        if _is_masked(name, own, rules):
            paths.append(own)
        else:
            kept[name] = masked(field, rules, paths, own)
    return kept


def _is_masked(name: str, path: str, rules: Sequence[str]) -> bool:
    words = re.sub(r"[^a-z0-9]", "", name.lower())
    return any(word in words for word in REDACTED_NAMES) or any(
        path == rule or fnmatchcase(name.lower(), rule.lower()) for rule in rules
    )
