"""One log line for each Python of the executors that lacks something; no pipeline waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest
from pyspark.sql import SparkSession

from arrester.agents.definition.used_modules import modules_of
from arrester.agents.spark import executor_python
from arrester.agents.spark.executor_python import check_executors, differences
from arrester.agents.spark.ship_worker_code import ship
from arrester.agents.worker.environment import Environment, environment

OWN = Environment("driver", "/usr/bin/python3", "3.11.2", (("pandas", "2.3.3"), ("numpy", "2.1.0")))


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test be the first one that looks at the executors."""
    monkeypatch.setattr(executor_python, "_checked", type(executor_python._checked)(set))
    yield


def executor(host: str, **versions: str | None) -> Environment:
    return OWN._replace(host=host, modules=tuple({**dict(OWN.modules), **versions}.items()))


def test_a_line_has_what_a_python_lacks_and_on_which_hosts() -> None:
    assert differences([executor("a"), executor("b")], OWN) == []
    found = [executor(f"host-{n}", pandas=None) for n in range(5)] + [executor("host-0")]
    python = "/usr/bin/python3 (Python 3.11.2)"
    assert differences(found, OWN) == [
        f"{python} on executors host-0, host-1, host-2 and 2 more lacks pandas"
    ]
    both = [executor("a", pandas=None, numpy="1.26.4")]
    assert differences(both, OWN) == [
        f"{python} on executor a lacks pandas and has numpy 1.26.4 (the driver has 2.1.0)"
    ]
    # A version that is not known on one side is no difference.
    assert differences([executor("a", numpy="")], OWN) == []


def test_modules_are_found_without_their_import() -> None:
    modules = dict(environment(["msgspec", "no_such_module", "email", "tests"]).modules)
    assert modules.pop("msgspec")
    assert modules == {"no_such_module": None, "email": "", "tests": ""}


def in_a_function(row: dict[str, object]) -> dict[str, object]:
    import no_such_module  # type: ignore[import-not-found]  # on purpose

    def inner() -> object:
        return msgspec.json.decode(json.dumps(row))

    return {"a": no_such_module.x(inner())}


class Callable:
    def __call__(self, row: dict[str, object]) -> dict[str, object]:
        return {"a": msgspec.UNSET}


def test_the_modules_of_a_function_are_those_that_it_imports_and_names() -> None:
    assert modules_of(in_a_function) == {"tests", "msgspec", "no_such_module"}
    assert modules_of(partial(in_a_function)) == modules_of(in_a_function)
    assert modules_of(Callable()) == {"tests", "msgspec"}
    assert modules_of(len) == set()


@pytest.mark.spark
def test_executors_are_looked_at_once_per_module(
    spark: SparkSession, unchecked: None, caplog: pytest.LogCaptureFixture
) -> None:
    ship(spark.sparkContext)
    thread = check_executors(spark, ["no_such_module"])
    assert thread is not None
    thread.join()
    [line] = [record.getMessage() for record in caplog.records if record.name == "arrester.agent"]
    assert line.endswith(" lacks no_such_module")
    assert check_executors(spark, ["no_such_module"]) is None


@pytest.mark.spark
def test_a_python_that_does_not_start_is_one_warning(
    spark: SparkSession,
    unchecked: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ship(spark.sparkContext)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    thread = check_executors(spark, ())
    assert thread is not None
    thread.join()
    [line] = [record.getMessage() for record in caplog.records if record.name == "arrester.agent"]
    assert line.startswith("the Python of the executors could not be checked: ")
    assert "/nowhere/python" in line
