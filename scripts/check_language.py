"""Refuse words that the glossary replaces, in docs, templates, static files and messages."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md")
TEMPLATES = ("dashboard/templates/**/*.html",)
STATIC = ("dashboard/static/dashboard/*.js", "dashboard/static/dashboard/*.css")
#: Python whose messages are checked.
CODE = tuple(
    f"{folder}/**/*.py"
    for folder in ("agents", "benchmarks", "controlplane", "dashboard", "examples")
)
REPLACED = {
    r"wish(es|ed)?": "command, request",
    r"told|tells?(?= (the server|of|about|in full))": "reported",
    r"(not )?heard( of)?": "last seen, no heartbeat",
    r"nobody|somebody|whoever": "no live instance, a person, the caller",
    r"stands?|stood": "is PAUSED, is stopped",
    r"(?<!dead )(?<!dead-)letters? (wait|waits|that|is|are)": "dead letter",
    r"aside": "quarantined",
    r"guilty|blam(e|es|ed|ing)": "failing record, isolate",
    r"in one pass|with care": "fast path, slow path",
    r"trials?": "sink probe",
    r"spent|spends?": "used",
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


def page_text(source: str) -> str:
    """Return Markdown without code, with its line numbers."""
    return _without(r"^```.*?^```|`[^`\n]*`", source)


def template_text(source: str) -> str:
    """Return a template without tags, with its line numbers."""
    return _without(r"\{[%#].*?[%#]\}|\{\{.*?\}\}|<[^>]*>", source)


def messages(source: str) -> str:
    """Return the string constants with a space of a Python module, with their line numbers."""
    tree = ast.parse(source)
    lines = [""] * (source.count("\n") + 1)
    # A string that is a statement is a docstring.
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    for node in constants:
        text = node.value
        if isinstance(text, str) and " " in text and id(node) not in docstrings:
            lines[node.lineno - 1] += " ".join(text.split()) + " "
    return "\n".join(lines)


def _without(pattern: str, source: str) -> str:
    return re.sub(
        pattern, lambda found: "\n" * found[0].count("\n"), source, flags=re.DOTALL | re.MULTILINE
    )


CHECKED: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    (PAGES, page_text),
    (TEMPLATES, template_text),
    (STATIC, str),
    (CODE, messages),
)


def main() -> int:
    """Print the faults of all checked files."""
    found = [
        f"{path.relative_to(REPOSITORY)}: {fault}"
        for patterns, text in CHECKED
        for pattern in patterns
        for path in sorted(REPOSITORY.glob(pattern))
        for fault in faults(text(path.read_text()))
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
