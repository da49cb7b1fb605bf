"""What `make release` requires of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.release import problems_of
from tests.services import REPOSITORY

CHART = Path("deploy/helm/arrester/Chart.yaml")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree that is ready for the release of 1.2.3."""
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-12-01\n\n## 1.2.2 - x\n")
    (tmp_path / "tests/data/1.2.3").mkdir(parents=True)
    (tmp_path / "tests/data/1.2.3/expected.json").write_text("{}")
    (tmp_path / CHART).parent.mkdir(parents=True)
    (tmp_path / CHART).write_text("version: 1.2.3\nappVersion: '1.2.3'\n")
    return tmp_path


def test_a_complete_tree_is_ready(tree: Path) -> None:
    assert problems_of(tree, "1.2.3") == []


def test_each_lack_is_named(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-12-01\n")
    (tree / CHART).write_text("version: 1.2.2\nappVersion: '1.2.3'\n")
    (tree / "tests/data/1.2.3/expected.json").unlink()
    assert problems_of(tree, "1.2.3") == [
        "CHANGELOG.md begins with 'Unreleased', not with '1.2.3 - DATE'",
        "there is no sample of what 1.2.3 writes: python -m tests.upgrade.freeze tests/data/1.2.3",
        "version of the Helm chart is 1.2.2, not 1.2.3",
    ]


def test_the_files_that_are_looked_at_are_there() -> None:
    assert len(problems_of(REPOSITORY, "0.0.1")) == 4
