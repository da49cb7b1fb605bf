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


def test_the_versions_that_are_named_are_those_that_the_tests_have() -> None:
    def pinned(name: str, file: str = "dev") -> str:
        text = (REPOSITORY / "requirements" / f"{file}.txt").read_text()
        found = re.search(rf"^{name}==(\S+)", text, re.MULTILINE)
        return "" if found is None else found[1]

    project = (REPOSITORY / "pyproject.toml").read_text()
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    [python] = re.findall(r'^python_version = "(.+)"', project, re.MULTILINE)
    [java] = re.findall(r"openjdk-(\d+)-jre-headless", dockerfile)
    packages = ("pandas", "pyarrow", "confluent-kafka")
    versions = [pinned("pyspark"), java, python, *map(pinned, packages)]
    readme = (REPOSITORY / "README.md").read_text()
    assert f"\n| {' | '.join(versions)} |\n" in readme
    [image] = re.findall(r"^FROM python:(\d+\.\d+)", dockerfile, re.MULTILINE)
    assert f"have Python {image}." in readme

    admitted = f"pyspark=={pinned('pyspark').rpartition('.')[0]}.*"
    assert f'"{admitted}"' in project and f"`{admitted}`" in readme
    assert pinned("pyspark", "agents") == pinned("pyspark")
    kafka = (REPOSITORY / "docs" / "how-to" / "kafka.md").read_text()
    assert f"spark-sql-kafka-0-10_2.13:{pinned('pyspark')} " in kafka


def test_links_and_pictures_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_that_the_architecture_names_exist() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    for path in re.findall(r"`((?:controlplane|agents|docs)/[\w/.-]+\.(?:py|md))`", text):
        assert (REPOSITORY / path).exists(), path
