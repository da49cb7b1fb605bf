"""Refuse words that the glossary replaces, in the pages of docs that are written by its rules."""

from __future__ import annotations

import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
#: Pages and templates that are checked; a rewritten folder is added here.
CHECKED = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/glossary.md",
    "docs/performance.md",
    "docs/reference/configuration.md",
    "docs/reference/semantics.md",
    "docs/reference/server.md",
    "docs/explanation/*.md",
)
REPLACED = {
    r"wish(es|ed)?": "command, request",
    r"(told|tells|tell) (the server|of|about|in full)": "reported",
    r"(not )?heard( of)?": "last seen, no heartbeat",
    r"nobody (runs|knows|looks|is blamed)": "no live instance, unknown, no failing record",
    r"stands?|stood": "is PAUSED, is stopped",
    r"(?<!dead )(?<!dead-)letters? (wait|waits|that|is|are)": "dead letter",
    r"kept aside|put aside": "quarantined",
    r"guilty": "failing record",
    r"in one pass|with care": "fast path, slow path",
    r"ticked": "selected",
    r"under way": "in progress",
    r"for ever": "since creation, permanently",
    r"road": "path, delivery, outbox",
}


def faults(text: str) -> list[str]:
    """Return a line for each replaced word in `text`."""
    return [
        f"line {number}: {found[0]!r}: write {term}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, term in REPLACED.items()
        for found in re.finditer(rf"\b(?:{pattern})\b", line, re.IGNORECASE)
    ]


def main() -> int:
    """Print the faults of all checked files."""
    found = [
        f"{path.relative_to(REPOSITORY)}: {fault}"
        for pattern in CHECKED
        for path in sorted(REPOSITORY.glob(pattern))
        for fault in faults(path.read_text())
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
