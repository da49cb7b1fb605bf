"""Refuse words that the glossary replaces, in pages, templates, static files and Python.

In Python these are messages, comments, docstrings, and the names that a module defines. Sentences
of the documentation that are too long are refused too.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md")
#: Pages whose sentences are short. The changelog and decision records stay as they were written.
PROSE = (
    *("README.md", "docs/*.md", "docs/explanation/*.md", "docs/how-to/**/*.md"),
    *("docs/reference/*.md", "docs/tutorial/*.md"),
)
#: The most words of a sentence.
SENTENCE_WORDS = 30
TEMPLATES = ("dashboard/templates/**/*.html",)
STATIC = ("dashboard/static/dashboard/*.js", "dashboard/static/dashboard/*.css")
CODE = tuple(
    f"{folder}/**/*.py"
    for folder in ("agents", "benchmarks", "cli", "controlplane", "dashboard", "domain", "examples")
)
#: Python whose names, comments and docstrings alone are checked: its texts are often test data.
UNCHECKED_TEXTS = ("tests/**/*.py", "scripts/*.py", "migrations/*.py")
GLOSSARY = "docs/glossary.md"
#: A private word, as a pattern, and the words to write in its place.
REPLACED = {
    r"wish(es|ed)?": "command, request",
    r"told|tells?|telling": "report, log",
    r"says?|said|saying": "report, log, state",
    r"(not )?heard( of)?|hears?": "last seen, no heartbeat",
    r"nobody|anybody|somebody|whoever": "no live instance, a person, the caller",
    r"whatever": "any",
    r"stands?|stood": "is PAUSED, is stopped, represents",
    r"letters? (wait|waits|that|is|are)": "dead letter",
    r"aside": "quarantined",
    r"guilty|blam(e|es|ed|ing)": "failing record, isolate",
    r"fates?": "response, outcome",
    r"in one pass|with care": "fast path, slow path",
    r"trials?": "sink probe",
    r"spent|spends?|spending": "used",
    r"ticked": "selected",
    r"under way": "in progress",
    r"for ever": "since creation, permanently",
    r"roads?": "path, delivery, outbox",
    r"rooms?": "space, local checkpoint storage",
    r"shel(f|ves)": "held records",
}
#: Words that are plain English in a sentence, and have no meaning in a name.
REPLACED_IN_NAMES = {
    r"letters?": "dead letter",
    r"teller": "event factory",
    r"turns?": "run lock",
    r"ways?": "path, path selection",
    r"brief": "summary",
    r"thrown": "throwable",
    r"twins?": "duplicate",
    r"misfits?": "mismatch",
    r"halt(s|ed)?": "stop, pause offset",
    r"company": "together",
}
#: Names that stay although they have such a word.
KEPT_NAMES = {
    "heard_at": "a field of instances in REST",
    "tell": "a method of Python's files",
    "last_heard": "a field of the event InstanceLost",
    "spent": "a field of stored states of tasks and threads, and of threads in REST",
}


def faults(text: str) -> list[str]:
    """Return a line for each replaced word in `text`."""
    return [
        f"line {number}: {word!r}: write {term}"
        for number, line in enumerate(text.splitlines(), 1)
        for word, term in _replaced_words(line, REPLACED)
    ]


def name_faults(names: Iterable[tuple[int, str]]) -> list[str]:
    """Return a line for each replaced word in names with their line numbers."""
    return [
        f"line {number}: name {name!r} has {word!r}: write {term}"
        for number, name in names
        if name not in KEPT_NAMES
        # The name of a test is a sentence.
        for replaced in [REPLACED if name.startswith("test_") else REPLACED | REPLACED_IN_NAMES]
        for word, term in _replaced_words(_spaced(name), replaced)
    ]


def _replaced_words(text: str, replaced: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the words of `text` with their replacements; terms of the glossary are fine."""
    any_word = rf"\b(?:{'|'.join(replaced)})\b"
    if re.search(any_word, text, re.IGNORECASE) is None:
        return
    for found in re.finditer(any_word, _terms().sub("", text), re.IGNORECASE):
        words = (term for word, term in replaced.items() if re.fullmatch(word, found[0], re.I))
        yield found[0], next(words)


@cache
def _terms() -> re.Pattern[str]:
    rows = re.findall(r"^\| ([^|]+) \|", (REPOSITORY / GLOSSARY).read_text(), re.MULTILINE)
    terms = "|".join(re.escape(term).replace(r"\ ", "[ -]") for term in rows)
    return re.compile(rf"\b(?:{terms})s?\b", re.IGNORECASE)


def _spaced(name: str) -> str:
    """Split a name at underscores and capitals: `readDeadLetters` is `read Dead Letters`."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name))


def page_text(source: str) -> str:
    """Return Markdown without code, with its line numbers."""
    return _without(r"^```.*?^```|`[^`\n]*`", source)


def long_sentences(source: str) -> list[str]:
    """Return a line for each sentence of a page that has too many words.

    Code within a line is one word. Code blocks, tables and headings have no sentences.
    """
    text = _without(r"^ *```.*?^ *```$|^(?: *[|#<]| {4})[^\n]*", source)
    text = re.sub(r"`[^`\n]+`", "code", text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    ends = re.finditer(r"(?<=[.!?])[\"*_)]*\s|\n\s*\n|^ *(?:[-*]|\d+\.) ", text, re.MULTILINE)
    found: list[str] = []
    start = 0
    for end in [*(each.end() for each in ends), len(text)]:
        sentence = text[start:end]
        words = sum(re.search(r"\w", word) is not None for word in sentence.split())
        if words > SENTENCE_WORDS:
            line = text.count("\n", 0, end - len(sentence.lstrip())) + 1
            found.append(
                f"line {line}: {words} words in a sentence: write at most {SENTENCE_WORDS}"
            )
        start = end
    return found


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


def comments(source: str) -> str:
    """Return the comments and docstrings of a Python module, with their line numbers."""
    lines = [""] * (source.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for number, line in enumerate(str(node.value.value).splitlines(), node.lineno):
                lines[number - 1] = line
    return _without(r"`[^`\n]*`", "\n".join(lines))


def defined_names(source: str) -> list[tuple[int, str]]:
    """Return the names that a Python module defines, with their line numbers."""
    names: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.append((node.lineno, node.name))
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.append((node.lineno, name))
            case ast.arg(arg=name) | ast.alias(asname=str(name)):
                names.append((node.lineno, name))
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.append((node.lineno, name))
            case ast.ExceptHandler(name=str(name)):
                names.append((node.lineno, name))
    return names


def _without(pattern: str, source: str) -> str:
    return re.sub(
        pattern, lambda found: "\n" * found[0].count("\n"), source, flags=re.DOTALL | re.MULTILINE
    )


def module_faults(source: str) -> list[str]:
    """Return the faults in the comments, docstrings and names of a Python module."""
    return [*faults(comments(source)), *name_faults(defined_names(source))]


CHECKED: tuple[tuple[tuple[str, ...], Callable[[str], list[str]]], ...] = (
    (PAGES, lambda source: faults(page_text(source))),
    (PROSE, long_sentences),
    (TEMPLATES, lambda source: faults(template_text(source))),
    (STATIC, faults),
    (CODE, lambda source: [*faults(messages(source)), *module_faults(source)]),
    (UNCHECKED_TEXTS, module_faults),
)


def main() -> int:
    """Print the faults of all checked files."""
    found = [
        f"{path.relative_to(REPOSITORY)}: {fault}"
        for patterns, check in CHECKED
        for pattern in patterns
        for path in sorted(REPOSITORY.glob(pattern))
        for fault in [*check(path.read_text()), *name_faults([(1, path.stem)])]
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
