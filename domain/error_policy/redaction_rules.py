"""Names, patterns and JSON paths of fields in settings; any that can match nothing is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

from arrester.domain.error_policy.setting_types import names

RULE = (
    "names, patterns of whole names (card*) and JSON paths without patterns ($.a.b, $.list[*].b, "
    "$['a']['b']), as a list or separated by commas"
)
_STEP = re.compile(r"\.?(?P<plain>[^.\[\]*?]+)|\[(?P<item>\*|\d+)\]|\[(['\"])(?P<quoted>.+?)\3\]")


def fields_parser(*, items: bool = True) -> Callable[[object], tuple[str, ...]]:
    """Return a parser of names and paths; a path becomes `$.a.b`, through lists as through fields.

    A rule for one item of a list applies to all items. With `items` false, item numbers are
    refused, as for rules that show fields. `..`, filters, and names other than in lists are refused
    too.
    """

    def parse(value: object) -> tuple[str, ...]:
        return tuple(_path(rule, items=items) for rule in names(value))

    return parse


def _path(rule: str, *, items: bool) -> str:
    if not rule.startswith(("$.", "$[")) and not {".", "["} & set(rule):
        return rule
    rest = rule[1:] if rule.startswith(("$.", "$[")) else rule
    parts: list[str] = []
    while rest:
        step = _STEP.match(rest)
        if step is None or (not items and (step["item"] or "*") != "*"):
            raise ValueError(rule)
        rest = rest[step.end() :]
        if step["item"] is None:
            parts.append(step["plain"] or step["quoted"])
    if not parts:
        raise ValueError(rule)
    return "$." + ".".join(parts)
