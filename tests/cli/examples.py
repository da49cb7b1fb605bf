"""The examples of docs/reference/cli.md: commands with their recorded output."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.cli.conftest import Output
from tests.services import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "cli.md"
#: The address of the server on the page.
ADDRESS = "http://127.0.0.1:8000"
_BLOCK = re.compile(r"```console\n\$ arrester ([^\n]*)\n(.*?)```", re.DOTALL)
#: What changes with each run: times, ids, tokens, ages, paths, the version.
_CHANGING = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)?", "TIME"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"\barrester_[0-9a-f]{64}\b", "TOKEN"),
    (r"[\d,.]+ (of [\d,.]+ )?(GB|MB)", "SIZE"),
    (r"[+-]\d+\.\d s\b", "SECONDS"),
    (r"\b\d+[smhd]( \d+[smhd])?\b", "AGE"),
    (r"\S*/profiles\.json", "PROFILES"),
    (r"\b(redis|unix)://\S+", "REDIS"),
    (r"\bed25519:\S+", "KEY"),
    (r"\b\d+\.\d+(\.\d+)?(?=[\s,]|$)", "VERSION"),
    (r"[ \t]+", " "),
]


class Example(NamedTuple):
    """A command, and its output on the page."""

    words: list[str]
    expected: str


def examples(page: str, address: str) -> Iterator[Example]:
    """Yield the examples of a page for a server at an address."""
    for command, expected in _BLOCK.findall(page):
        words = [os.path.expandvars(word) for word in shlex.split(command)]
        yield Example([word.replace(ADDRESS, address) for word in words], expected)


def transcript(output: Output, address: str) -> str:
    """Return an output as the page has it."""
    code = f"exit code {output.code}\n" if output.code else ""
    text = f"{output.out}{output.err}{code}".replace(address, ADDRESS)
    return re.sub(r"\S*/profiles\.json", "~/.config/arrester/profiles.json", text)


def comparable(text: str) -> str:
    """Return a text without what changes with each run."""
    # The level of a disk, and so its place and the totals, depend on the machine.
    text, disks = re.subn(r"(?m)^\w+ +\w+ disk .*\n", "", text)
    text = re.sub(
        r"(\d+) warnings, (\d+) ok", lambda found: f"{sum(map(int, found.groups()))} others", text
    )
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return f"{text.strip()}\n{disks} disks"


def recorded(page: str, call: Callable[[list[str]], str]) -> str:
    """Return the page with the outputs of its commands."""
    return _BLOCK.sub(
        lambda found: f"```console\n$ arrester {found[1]}\n{call(shlex.split(found[1]))}```", page
    )
