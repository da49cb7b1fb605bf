"""The names in docs/reference/failure-classes.md are those that code, Spark and drivers have."""

from __future__ import annotations

import builtins
import json
import pkgutil
import re
import zipfile
from functools import cache
from importlib import import_module
from pathlib import Path

import confluent_kafka
import psycopg
import pyspark
import pytest
from msgspec.structs import replace

import arrester.agents
from arrester.agents.definition.stores import delta_table, iceberg_table
from arrester.agents.failures import failed_record, native_diagnosis
from arrester.agents.handlers import CONTINUE, OWN_FAILURES, checked_answers
from arrester.agents.schema_registry.errors import (
    InvalidFrame,
    LogicalTypeMismatch,
    UnknownSchemaId,
)
from arrester.agents.spark.errors import WORKER_CRASHED
from arrester.agents.worker.arrow_reader import Unreadable
from arrester.agents.worker.columns import POSITION_RAISED, TASK_RAISED
from arrester.agents.worker.type_check import WrongType
from arrester.dashboard.text.failure_advice import ADVICE, PARSED, advice
from arrester.domain.error_policy.classify import DEFAULT_TABLE
from arrester.domain.error_policy.failure_classes import KAFKA
from arrester.domain.errors import ArresterError, InvalidValue
from arrester.domain.events import Failure
from tests.services import REPOSITORY

_FRAMED = (InvalidFrame, UnknownSchemaId, LogicalTypeMismatch)
PAGE = REPOSITORY / "docs" / "reference" / "failure-classes.md"


def section(heading: str) -> str:
    return PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(heading: str) -> list[list[list[str]]]:
    """Return the rows of a section's table: for each cell the names in it."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")][2:]
    assert lines
    return [
        [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")] for line in lines
    ]


def names(heading: str, column: int = 0) -> list[str]:
    return [name for row in rows(heading) for name in row[column]]


def in_full(heading: str, name: str) -> set[str]:
    """Return a name, alone and with each of the packages that the section lists."""
    [listed] = re.findall(r"^Packages: (.*?)\.$", section(heading), re.MULTILINE | re.DOTALL)
    return {name, *(f"{package}.{name}" for package in re.findall(r"`(.+?)`", listed))}


def archives() -> list[Path]:
    return sorted((Path(pyspark.__path__[0]) / "jars").glob("*.jar"))


@cache
def classes_of_spark() -> frozenset[str]:
    """Return the names of Spark's own classes."""
    found: set[str] = set()
    for archive in archives():
        if archive.name.startswith("spark-"):
            found |= {name.removesuffix(".class") for name in zipfile.ZipFile(archive).namelist()}
    return frozenset(name.replace("/", ".") for name in found)


def conditions_of_spark() -> set[str]:
    [archive] = [each for each in archives() if re.match(r"spark-common-utils_", each.name)]
    return set(json.loads(zipfile.ZipFile(archive).read("error/error-conditions.json")))


def test_the_names_of_any_pipeline_are_all_that_the_agent_gives() -> None:
    source = Path(failed_record.__file__).read_text()
    assert sorted(names("Failed records of any pipeline")) == sorted(
        [
            *(WrongType.__name__, Unreadable.__name__, WORKER_CRASHED),
            *(TASK_RAISED, POSITION_RAISED, native_diagnosis.NOT_REPEATED.exception_class),
            *re.findall(r'Problem\(exception_class="(\w+)"', source),
        ]
    )
    assert issubclass(WrongType, TypeError)
    assert issubclass(Unreadable, ValueError)
    without_class = (WORKER_CRASHED, native_diagnosis.NOT_REPEATED.exception_class)
    own = dict.fromkeys(without_class, "on_error= in place of on=")
    own |= {WrongType.__name__: "TypeError", Unreadable.__name__: "ValueError"}
    assert set(own) == set(OWN_FAILURES)
    for name, spelling in own.items():
        with pytest.raises(InvalidValue, match=f"{spelling}.*{name}"):
            checked_answers("step", None, {name: CONTINUE})


def test_the_names_of_native_steps_exist_in_spark() -> None:
    heading = "Failed records of native steps"
    own = {f"{each.__module__}.{each.__name__}" for each in _FRAMED}
    # tests/agents/execution/test_failure_conditions.py raises them.
    own |= {f"java.lang.{name}Exception" for name in ("Arithmetic", "IllegalArgument", "Runtime")}
    own |= {"com.univocity.parsers.common.TextParsingException"}
    for name in names(heading):
        assert in_full(heading, name) & (classes_of_spark() | own), name
    assert {name.rpartition(".")[2] for name in own} <= set(names(heading))
    assert set(names(heading, 1)) <= conditions_of_spark()


def test_the_names_of_sinks_are_those_of_the_drivers() -> None:
    heading = "Failed records of sinks"
    violations = {name for name in names(heading, 1) if name.startswith("DELTA_")}
    assert violations == set(delta_table._MESSAGES)
    of_iceberg = dict((iceberg_table.NOT_NULL, iceberg_table.OUT_OF_RANGE))
    assert set(of_iceberg) <= classes_of_spark()
    assert set(of_iceberg.values()) <= conditions_of_spark()
    for state in set(names(heading, 1)) - violations - set(of_iceberg.values()):
        assert psycopg.errors.lookup(state)
    codes = {f"confluent_kafka.KafkaError.{name}" for name in dir(confluent_kafka.KafkaError)}
    known = {"org.postgresql.util.PSQLException", delta_table.REFUSED, *of_iceberg}
    known |= {f"{KAFKA}RecordTooLargeException"}
    found = [in_full(heading, name) & (known | codes) for name in names(heading)]
    assert all(found)
    assert known <= set().union(*found)


def test_the_names_of_no_record_have_the_kind_of_the_page() -> None:
    heading, known = "Failures of no record", DEFAULT_TABLE.classifications
    for listed, *_ in rows(heading):
        [line] = [
            each for each in section(heading).splitlines() if each.startswith(f"| `{listed[0]}`")
        ]
        kind = line.split("|")[2].strip().upper().replace("-", "_")
        for name in listed:
            builtin = {f"builtins.{name}"} if hasattr(builtins, name) else set()
            [full] = (in_full(heading, name) | builtin) & set(known)
            assert known[full].kind == kind, name


def test_each_name_of_the_table_that_spark_or_python_has_exists() -> None:
    listed = [name.rpartition(".") for name in DEFAULT_TABLE.classifications]
    homes = {
        "builtins": dir(builtins),
        "psycopg.errors": dir(psycopg.errors),
        "confluent_kafka.KafkaError": dir(confluent_kafka.KafkaError),
    }
    found = [(home, name) for home, _, name in listed if home in homes]
    assert {home for home, _ in found} == set(homes)
    assert [each for each in found if each[1] not in homes[each[0]]] == []
    of_spark = {
        f"{home}.{name}"
        for home, _, name in listed
        if home.startswith("org.apache.spark") and not home.endswith(".delta")
    }
    assert of_spark and of_spark <= classes_of_spark()


def test_the_ends_of_a_run_are_exceptions_of_the_agent() -> None:
    for module in pkgutil.walk_packages(arrester.agents.__path__, "arrester.agents."):
        import_module(module.name)
    known = {each.__name__ for each in _subclasses(ArresterError)}
    known |= {"SchemaRegistryUnavailable"}
    listed = set(names("Ends of a run, and refused starts"))
    assert listed <= known
    public = (REPOSITORY / "docs" / "reference" / "python-api.md").read_text()
    documented = set(re.findall(r"^::: .*\.([A-Z]\w+)$", public, re.MULTILINE)) & known
    assert documented <= listed


def _subclasses(kind: type[BaseException]) -> set[type[BaseException]]:
    found = set(kind.__subclasses__())
    return found.union(*map(_subclasses, found)) if found else found


def test_each_name_and_condition_of_the_page_has_advice_about_the_same_code() -> None:
    for heading in (
        *("Failed records of any pipeline", "Failed records of native steps"),
        *("Failed records of sinks", "Failures of no record"),
    ):
        for row in rows(heading):
            for condition in row[1] if heading.startswith("Failed records of") else ():
                # A condition of a table, not the code of its other cells.
                if condition.isupper() or condition[:1].isdigit():
                    assert condition in ADVICE, condition
            if heading == "Failures of no record" or not row[1]:
                for name in row[0]:
                    assert name.rpartition(".")[2] in ADVICE, name
    for causes, conditions, *_ in rows("Causes of parse failures"):
        assert all(each in PARSED for each in conditions or causes), (causes, conditions)
    page = PAGE.read_text() + (PAGE.parents[1] / "how-to" / "guard-a-pipeline.md").read_text()
    for text in (*ADVICE.values(), *PARSED.values()):
        for code in re.findall(r"`([^`]+)`", text):
            assert code in page, code


def test_the_advice_about_a_parsed_text_is_that_of_its_cause() -> None:
    malformed = Failure(
        stage="deserialize",
        exception_class="a.SparkException",
        condition="MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION",
        message="",
        fingerprint="2-00",
        inner_class="a.SparkDateTimeException",
        inner_condition="CAST_INVALID_INPUT",
    )
    # `on=` answers the outer condition only.
    assert "STRING" in advice(malformed) and "on=" not in advice(malformed)
    unknown = replace(malformed, inner_class="a.Unknown", inner_condition=None)
    assert "`PERMISSIVE` is" in advice(unknown)
    refused = replace(
        malformed, condition=None, inner_class="a.PSQLException", inner_condition="23505"
    )
    assert "`key=` updates" in advice(refused)


@pytest.mark.parametrize(
    ("name", "condition", "words"),
    [
        ("org.apache.spark.SparkNumberFormatException", "CAST_INVALID_INPUT", "no number"),
        ("org.apache.spark.SparkDateTimeException", "CAST_INVALID_INPUT", "no date or time"),
        ("a.Other", "CAST_INVALID_INPUT", "does not fit the type"),
        ("a.SparkException", "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION", "`PERMISSIVE` is"),
        ("org.postgresql.util.PSQLException", "23505", "`key=` updates"),
        ("org.postgresql.util.PSQLException", "57014", "`statement_timeout`"),
        ("builtins.ModuleNotFoundError", None, "`addPyFile`"),
        ("confluent_kafka.KafkaError.INVALID_RECORD", None, "compacted"),
        ("builtins.ValueError", None, ""),
    ],
)
def test_the_most_specific_advice_is_given(name: str, condition: str | None, words: str) -> None:
    failure = Failure(
        stage="deserialize",
        exception_class=name,
        condition=condition,
        message="",
        fingerprint="1-00",
    )
    found = advice(failure)
    assert words in found
    assert bool(found) == bool(words)
