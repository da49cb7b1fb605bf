"""What the documents promise is there."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def test_each_row_of_failures_names_a_test_that_exists() -> None:
    tests = "\n".join(path.read_text() for path in (REPOSITORY / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", (REPOSITORY / "docs" / "failures.md").read_text()))
    assert named
    assert {name for name in named if f"def {name}(" not in tests} == set()


def test_links_and_pictures_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_that_the_architecture_names_exist() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    for path in re.findall(r"`((?:controlplane|agents|docs)/[\w/.-]+\.(?:py|md))`", text):
        assert (REPOSITORY / path).exists(), path
