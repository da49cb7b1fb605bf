"""What the documents promise is there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from arrester import __version__
from arrester.agents.dead_letters.destinations import LAYOUT
from arrester.agents.dead_letters.rows import COLUMNS
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import SINKS
from arrester.dashboard.text import glossary
from arrester.domain.events import CommandKind
from scripts import check_language, configuration_reference, matrix

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", ["explanation/failures.md", "reference/delivery.md"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    tests = "\n".join(path.read_text() for path in (REPOSITORY / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", (REPOSITORY / "docs" / page).read_text()))
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

    admitted = "pyspark>=3.5,<5"
    assert f'"{admitted}"' in project and f"`{admitted}`" in readme
    assert pinned("pyspark", "agents") == pinned("pyspark")
    older = [pinned("pyspark", f"spark-{minor}") for minor in matrix.MINORS[:-1]]
    table = readme.partition(matrix.BEGIN)[2].partition(matrix.END)[0]
    run = re.findall(r"^\| (\d\S+) \|", table, re.MULTILINE)
    assert set(run) <= {*older, pinned("pyspark")}
    kafka = (REPOSITORY / "docs" / "how-to" / "kafka.md").read_text()
    assert f"spark-sql-kafka-0-10_2.13:{pinned('pyspark')} " in kafka

    def revision(part: str) -> str:
        """Return the version of the first artifact, which names the part."""
        artifacts = (REPOSITORY / "tests" / "jars" / f"kafka-{part}.xml").read_text()
        return str(re.findall(r'<dependency .* rev="(.+?)"', artifacts)[0])

    tested = (
        f"a broker of Kafka {revision('server')}, on Spark 4.0 with the connector {revision('4.0')}"
        f" and on Spark 4.3 with the connector {revision('4.3')}."
    )
    assert tested in " ".join(readme.split())


def test_commands_of_the_pages_name_the_current_version() -> None:
    files = r"arrester-(\d\S*?)-py3|arrester-server:(\d\S*)"
    text = "".join(page.read_text() for page in PAGES)
    named = {version for found in re.findall(files, text) for version in found if version}
    assert named == {__version__}


def test_the_columns_of_dead_letters_are_documented() -> None:
    page = (REPOSITORY / "docs" / "reference" / "dead-letters.md").read_text()
    table = page.partition("## Columns")[2].partition("##")[0]
    rows = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert names == [*COLUMNS, LAYOUT, "day"]


def test_messages_and_the_table_of_deliveries_name_each_sink() -> None:
    sinks = [
        name
        for name, method in vars(PipelineBuilder).items()
        if not name.startswith("_")
        and getattr(method, "__annotations__", {}).get("return") == "Pipeline"
    ]
    assert sorted(re.findall(r"\.(\w+)", SINKS)) == sorted(sinks)
    page = (REPOSITORY / "docs" / "reference" / "delivery.md").read_text()
    for table in page.partition("\n## How often\n")[2].split("\n| sink |")[1:3]:
        assert set(re.findall(r"^\| `\.(\w+)", table, re.MULTILINE)) == set(sinks)


def test_the_kinds_of_commands_are_documented() -> None:
    page = (REPOSITORY / "docs" / "reference" / "rest.md").read_text()
    table = page.partition("## Commands")[2]
    assert re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE) == list(CommandKind)


def test_links_and_pictures_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_answers_to_twenty_questions_are_two_clicks_from_the_index() -> None:
    page = (REPOSITORY / "docs" / "questions.md").read_text()
    questions = re.findall(r"^\d+\. \*\*(.+?)\*\*.*\]\((\S+\.md)", page, re.MULTILINE)
    assert len(questions) == 20
    assert "(questions.md)" in (REPOSITORY / "docs" / "index.md").read_text()


def test_the_index_lists_the_pages_as_the_navigation_does() -> None:
    navigation = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())["nav"]
    index = (REPOSITORY / "docs" / "index.md").read_text()
    listed = [
        {section.partition("\n")[0]: re.findall(r"\]\((\S+\.md)\)", section)}
        for section in index.split("\n## ")[1:]
    ]
    assert ["index.md", *listed] == navigation


def test_files_that_the_pages_name_exist() -> None:
    # A decision record names the files of its time.
    pages = [page for page in PAGES if page.parent.name != "decisions"]
    named = {
        path
        for page in pages
        for path in re.findall(
            r"`((?:controlplane|agents|dashboard|docs|examples|tests|scripts|benchmarks)/[\w/.-]+\.\w+)`",
            page.read_text(),
        )
    }
    assert {path for path in named if not (REPOSITORY / path).exists()} == set()


def test_each_finding_is_listed_in_its_folder_and_can_be_run() -> None:
    folder = REPOSITORY / "findings"
    listed = re.findall(r"^- `(.+?)`: ", (folder / "README.md").read_text(), re.MULTILINE)
    scripts = sorted(folder.glob("*.sh"))
    assert listed == [path.stem for path in scripts if path.stem != "environment"]
    for path in scripts:
        runnable = os.access(path, os.X_OK)
        assert runnable == (path.stem in listed), path
        assert len(path.read_text().splitlines()) <= 80, path


def test_the_configuration_reference_is_what_the_code_gives() -> None:
    assert configuration_reference.PAGE.read_text() == configuration_reference.page()


# `make lint` checks the pages and all other files.
def test_the_language_check_finds_replaced_words() -> None:
    assert check_language.faults("fine\nTwelve tasks stand.") == [
        "line 2: 'stand': write is PAUSED, is stopped, represents"
    ]


def test_the_language_check_reads_the_text_of_pages_templates_and_messages() -> None:
    page = "Text\n```\nroad\n```\nof `road` a road"
    assert check_language.faults(check_language.page_text(page)) == [
        "line 5: 'road': write path, delivery, outbox"
    ]
    template = '<p class="a road">{{ road }}\n{# road #}a road</p>'
    assert check_language.faults(check_language.template_text(template)) == [
        "line 2: 'road': write path, delivery, outbox"
    ]
    module = '"""A road."""\nroad = "road"\nraise ValueError(f"{road} is a road")'
    assert check_language.faults(check_language.messages(module)) == [
        "line 3: 'road': write path, delivery, outbox"
    ]


def test_the_language_check_reads_comments_and_docstrings() -> None:
    module = '"""A path.\n\nA road.\n"""\n\nvalue = 1  # told\n#: as `told`\n'
    assert check_language.module_faults(module) == [
        "line 3: 'road': write path, delivery, outbox",
        "line 6: 'told': write report, log",
    ]


def test_the_language_check_counts_the_words_of_sentences() -> None:
    short, long = " ".join(["word"] * 30) + ".", " ".join(["word"] * 31) + "."
    fault = "31 words in a sentence: write at most 30"
    assert check_language.long_sentences(f"{short} {short}\n\n- {short}\n1. {short}\n") == []
    assert check_language.long_sentences(f"{short} *{short}*\n{long}") == [f"line 2: {fault}"]
    assert check_language.long_sentences(f"Words:\n\n- Word.\n- {long}") == [f"line 4: {fault}"]
    unread = f"# {long}\n| {long} |\n   | {long} |\n```\n{long}\n```\n\n    {long}\n"
    assert check_language.long_sentences(unread) == []
    span = f"`{long}` [word word](https://{long})"
    assert check_language.long_sentences(" ".join([span] * 10)) == []


@pytest.mark.parametrize(
    "source",
    [
        "def tell_server(): ...",
        "class ServerTeller: ...",
        "_told = 1",
        "state.toldAt = 1",
        "def report(*, told: int): ...",
        "for told in (): pass",
        "with lock as told: pass",
        "import sys as teller",
        "try: pass\nexcept ValueError as told: pass",
        "match 1:\n    case [*told]: pass",
    ],
)
def test_a_private_word_in_a_name_that_a_module_defines_is_a_fault(source: str) -> None:
    [fault] = check_language.module_faults(source)
    assert re.match(r"line \d: name '\w+' has '(?i:tell|told|teller)': write ", fault)


def test_names_with_terms_of_the_glossary_or_from_elsewhere_are_no_faults() -> None:
    module = "dead_letters = DeadLetter = turning = spent = packet.told(letters)"
    assert check_language.module_faults(module) == []
    assert check_language.name_faults([(1, "letters")]) == [
        "line 1: name 'letters' has 'letters': write dead letter"
    ]


def test_the_name_of_a_test_is_checked_as_a_sentence() -> None:
    module = "def test_each_fails_in_its_own_way(): ...\n\ndef test_the_page_says_why(): ..."
    [fault] = check_language.module_faults(module)
    assert fault.endswith("'test_the_page_says_why' has 'says': write report, log, state")


def test_names_that_keep_a_private_word_exist() -> None:
    code = [
        path.read_text() for pattern in check_language.CODE for path in REPOSITORY.glob(pattern)
    ]
    defined = {name for source in code for _, name in check_language.defined_names(source)}
    assert set(check_language.KEPT_NAMES) <= defined


def test_the_glossary_of_the_documentation_is_that_of_the_product() -> None:
    page = (REPOSITORY / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    documented = {term: meaning for term, meaning in rows if term not in ("term", "---")}
    assert documented == glossary.TERMS
