"""`contrib/`: rules and dashboards name metrics that `/metrics` has, and promtool accepts them."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from django.db import connections
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from arrester.controlplane import embedded
from tests.dashboard.accounts import make_user, token
from tests.dashboard.story import Story
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.ports import free_port
from tests.services import REPOSITORY

RULES = REPOSITORY / "contrib" / "prometheus" / "arrester.rules.yml"
DASHBOARDS = sorted((REPOSITORY / "contrib" / "grafana").glob("*.json"))
#: What Grafana replaces in an expression.
VARIABLES = {"$__rate_interval": "5m", "$application": ".*", "$pipeline": ".*"}
#: What Grafana needs of a dashboard to import it.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time", "tags"],
    "properties": {
        "id": {"type": "null"},
        "uid": {"pattern": "^arrester-[a-z]+$"},
        "templating": {
            "properties": {
                "list": {
                    "contains": {
                        "properties": {
                            "name": {"const": "datasource"},
                            "type": {"const": "datasource"},
                            "query": {"const": "prometheus"},
                        }
                    }
                }
            }
        },
        "panels": {
            "minItems": 1,
            "items": {
                "required": ["id", "type", "title", "gridPos", "datasource", "targets"],
                "properties": {
                    "type": {"enum": ["stat", "table", "timeseries"]},
                    "datasource": {"$ref": "#/$defs/datasource"},
                    "gridPos": {
                        "required": ["x", "y", "w", "h"],
                        "properties": {"x": {"maximum": 23}, "w": {"minimum": 1, "maximum": 24}},
                    },
                    "targets": {
                        "minItems": 1,
                        "items": {
                            "required": ["expr", "refId", "datasource"],
                            "properties": {"datasource": {"$ref": "#/$defs/datasource"}},
                        },
                    },
                },
            },
        },
    },
    "$defs": {
        "datasource": {
            "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}}
        }
    },
}


@pytest.fixture(scope="module")
def promtool() -> str:
    """Return the path of promtool."""
    found = subprocess.run([REPOSITORY / "scripts" / "promtool"], stdout=subprocess.PIPE, text=True)
    assert found.returncode == 0
    return found.stdout.strip()


def passes(*command: str | Path, text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def boards() -> Iterator[dict[str, Any]]:
    for path in DASHBOARDS:
        yield json.loads(path.read_text())


def expressions() -> Iterator[str]:
    """Yield the expressions of all rules, panels and variables."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for board in boards():
        for panel in board["panels"]:
            yield from (target["expr"] for target in panel["targets"])
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                query = variable["query"]["query"]
                found = re.fullmatch(r"label_values\((.*), \w+\)", query)
                assert found, query
                yield found[1]


def replaced(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def exposed(flights: Story, viewer: Client) -> str:
    """Return the metrics of a server with some data."""
    now = datetime.now(UTC)
    flights.flows(ago=2, micro_batches=1, durations={"total:3": 1}, backlog=7, last_batch_at=now)
    command = flights.command(flights.pauses("LGA"))
    flights.fetches(command)
    flights.resumes("LGA", command)
    flights.pauses("JFK", held=12)
    flights.skips("EWR", 40)
    viewer.get("/")
    return viewer.get("/metrics").content.decode()


def test_promtool_finds_no_fault_in_the_metrics(
    promtool: str, flights: Story, viewer: Client
) -> None:
    # A name of the longest, on two checkpoints, of which one sample may be; a name that has what
    # the format escapes is refused, and keys of tasks are no labels.
    name = "x" * 63
    for checkpoint in ("first", "second"):
        long = replace(flights, pipeline=name, checkpoint=checkpoint)
        long.starts()
        long.pauses('"JFK"\n\\', held=3)
    replace(flights, pipeline='of "two"\\lines\n{a="b"}').pauses("JFK")
    text = exposed(flights, viewer)
    passes(promtool, "check", "metrics", text=text)
    samples = [
        (sample.name, *sorted(sample.labels.items()))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len({*samples}) == len(samples)
    pipelines = {sample[-1] for sample in samples if sample[-1][0] == "pipeline"}
    assert pipelines == {("pipeline", "delays"), ("pipeline", name)}


def test_promtool_accepts_the_rules_and_their_tests_pass(promtool: str) -> None:
    passes(promtool, "check", "rules", RULES)
    passes(promtool, "test", "rules", RULES.with_name("arrester.rules.test.yml"))


def test_every_expression_is_promql(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"test:expression:{number}", "expr": replaced(expression)}
        for number, expression in enumerate(expressions())
    ]
    file = tmp_path / "expressions.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "test", "rules": rules}]}))
    passes(promtool, "check", "rules", file)


def test_every_metric_of_rules_and_panels_is_exposed(flights: Story, viewer: Client) -> None:
    text = exposed(flights, viewer)
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    suffixes = ("_bucket", "_count", "_sum")
    series = {name for name, type in types.items() if type != "histogram"} | {
        f"{name}{suffix}"
        for name, type in types.items()
        if type == "histogram"
        for suffix in suffixes
    }
    named = {
        name
        for expression in expressions()
        for name in re.findall(r"(?<![:\w])arrester_\w+", expression)
    }
    assert named <= series
    # A dashboard or a rule for each metric that reports a fault.
    assert {"arrester_conditions", "arrester_fold_errors_total", "arrester_up"} <= named


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_has_the_form_that_grafana_imports(path: Path) -> None:
    board = json.loads(path.read_text())
    jsonschema.validate(board, SCHEMA)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    cells = [
        (x, y)
        for panel in board["panels"]
        for position in [panel["gridPos"]]
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    known = {f"${each['name']}" for each in board["templating"]["list"]} | {"$__rate_interval"}
    used = set(
        re.findall(r"\$\w+", " ".join(t["expr"] for p in board["panels"] for t in p["targets"]))
    )
    assert used <= known


@pytest.mark.long
def test_prometheus_scrapes_a_web_process_and_evaluates_the_rules(
    promtool: str,
    server: str,
    fresh_database: embedded.Urls,
    redis: Redis,
    tmp_path: Path,
) -> None:
    make_user("ana", "viewer")
    secret = token("ana")
    story = Story()
    story.starts()
    story.pauses("JFK", held=12)
    connections.close_all()
    target = {"targets": [server.removeprefix("http://")]}
    job = {
        "job_name": "arrester",
        "authorization": {"type": "Bearer", "credentials": secret},
        "static_configs": [target],
    }
    configuration = tmp_path / "prometheus.yml"
    interval = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    whole = {"global": interval, "rule_files": [str(RULES)], "scrape_configs": [job]}
    configuration.write_text(yaml.safe_dump(whole))
    url = f"127.0.0.1:{free_port()}"
    options = {
        "config.file": configuration,
        "storage.tsdb.path": tmp_path / "data",
        "web.listen-address": url,
        "log.level": "error",
    }
    command = [Path(promtool).with_name("prometheus")]
    process = subprocess.Popen([*command, *(f"--{name}={each}" for name, each in options.items())])

    def read(path: str) -> Any:
        with suppress(OSError), urllib.request.urlopen(f"http://{url}/api/v1/{path}") as answer:
            return json.load(answer)["data"]
        return None

    def held() -> bool:
        found = read("query?query=arrester_pipeline_held_records")
        return bool(found and found["result"] and found["result"][0]["value"][1] == "12")

    def evaluated() -> bool:
        found = read("rules")
        rules = [rule for group in found["groups"] for rule in group["rules"]] if found else []
        return bool(rules) and {rule["health"] for rule in rules} == {"ok"}

    def counted() -> bool:
        """The middleware counts under ASGI, too."""
        found = read("query?query=arrester_http_requests_total")["result"]
        routes = {(each["metric"]["route"], each["metric"]["status"]) for each in found}
        return ("/metrics", "2xx") in routes

    try:
        wait_until(held)
        wait_until(evaluated)
        wait_until(counted)
        assert [each["lastError"] for each in read("targets")["activeTargets"]] == [""]
        metadata = read("metadata")
        # OpenMetrics, which has units, was preferred.
        assert metadata["arrester_spool_bytes"][0]["unit"] == "bytes"
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
