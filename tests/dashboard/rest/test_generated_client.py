"""A client that is generated from the OpenAPI document performs every operation."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import EnumType
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args
from unittest import mock

import pytest
from redis import Redis

from arrester.controlplane import embedded, models
from arrester.dashboard.rest import schema
from tests.dashboard.accounts import token
from tests.dashboard.conftest import server
from tests.dashboard.story import NA, TYPO, Story, started_with_accounts

__all__ = ["server"]
PACKAGE = "arrester_client"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Generate the client; return the name of its package."""
    folder = tmp_path_factory.mktemp("client")
    document = folder / "arrester.json"
    document.write_text(json.dumps(schema._document(), default=str))
    generator = str(Path(sys.executable).with_name("openapi-python-client"))
    target = ["--path", str(document), "--output-path", str(folder / PACKAGE)]
    done = subprocess.run(
        [generator, "generate", "--meta", "none", *target],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with mock.patch.object(sys, "path", [str(folder), *sys.path]):
        yield PACKAGE
    for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


class Api:
    """The functions of the client by operation, with a token."""

    def __init__(self, package: str, url: str, text: str) -> None:
        self._package = package
        client = import_module(f"{package}.client").AuthenticatedClient
        self.client = client(base_url=url, token=text)
        self.performed: set[str] = set()
        folder = Path(import_module(f"{package}.api").__file__ or "").parent
        self.operations = {
            each.stem: f"{package}.api.{each.parent.name}.{each.stem}"
            for each in folder.glob("*/[a-z]*.py")
        }

    def module(self, operation: str) -> ModuleType:
        self.performed.add(operation)
        return import_module(self.operations[operation])

    def __call__(
        self, operation: str, *, code: int = 200, body: dict[str, Any] | None = None, **given: Any
    ) -> Any:
        """Perform an operation; return the parsed answer."""
        perform = self.module(operation).sync_detailed
        types = {
            name: (*get_args(each.annotation), each.annotation)
            for name, each in inspect.signature(perform).parameters.items()
        }
        for name, value in given.items():
            enums = [each for each in types[name] if isinstance(each, EnumType)]
            given[name] = enums[0](value) if enums else value
        if body is not None:
            # A body that may be left out has a union as its type.
            given["body"] = types["body"][0].from_dict(body)
        answer = perform(client=self.client, **given)
        assert answer.status_code == code, (operation, answer.content)
        return answer.parsed

    def lines(self, operation: str, number: int, **given: Any) -> list[str]:
        """Return the first lines of a stream."""
        request = self.module(operation)._get_kwargs(**given)
        found: list[str] = []
        with self.client.get_httpx_client().stream(**request) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                found.append(line)
                if len(found) == number:
                    return found
        raise AssertionError(found)


@pytest.fixture
def story(fresh_database: embedded.Urls, redis: Redis) -> Story:
    return started_with_accounts()


@pytest.fixture
def api(story: Story, package: str, server: str) -> Iterator[Api]:
    found = Api(package, server, token("ada"))
    with found.client:
        yield found


def test_a_generated_client_performs_every_operation(api: Api, story: Story) -> None:
    _reads(api, story)
    _commands(api, story)
    _dead_letters(api, story)
    _groups(api, story)
    _the_rest(api, story)
    assert api.operations.keys() - api.performed == set()
    assert len(api.operations) == len(list(_operation_ids()))


def _operation_ids() -> Iterator[str]:
    for path in schema._document()["paths"].values():
        yield from (each["operationId"] for each in path.values())


def _reads(api: Api, story: Story) -> None:
    paused = story.pauses("JFK")
    story.flows(ago=1, records_in=500, records_out=480)
    [application] = api("applications_list").results
    assert (application.name, application.paused) == ("flights", 1)
    assert api("applications_retrieve", name="flights").sequence == application.sequence
    [instance] = api("applications_instances_list", name="flights").results
    one = api("applications_instances_retrieve", name="flights", id=instance.id)
    assert (one.host, one.status) == (instance.host, instance.status)
    assert [each.id for each in api("instances_list").results] == [instance.id]
    [run] = api("applications_runs_list", name="flights").results
    assert (run.pipeline, run.instance) == ("delays", instance.id)
    [task] = api("tasks_list", application="flights").results
    assert (task.key, task.status.value, task.failure.fingerprint) == (
        "JFK",
        "PAUSED",
        TYPO.fingerprint,
    )
    assert api("tasks_retrieve", digest=paused.digest).status_changed_at.tzinfo is not None
    assert [each.id for each in api("held_list").results] == [paused.digest]
    [pipeline] = api("pipelines_list").results
    assert (pipeline.pipeline, pipeline.recent.records_in) == ("delays", 500)
    where: dict[str, Any] = {"application": "flights", "pipeline": "delays"}
    assert api("pipelines_retrieve", **where).run.value == "RUNNING"
    assert [each.epoch for each in api("pipelines_runs_list", **where).results] == [1]
    assert api("pipelines_series_retrieve", **where).results[0].records_in == 500
    assert api("pipelines_series_of_all").results[0].records_out == 480
    [failure] = api("failures_list", key="JFK").results
    assert (failure.response, failure.first_position) == ("PAUSE", task.position)
    assert sum(each.count for each in api("failures_series_retrieve").results) == 1
    [found] = api("records_list", q="key:none").results or [None]
    assert found is None
    record = api("records_retrieve", application="flights", sequence=failure.sequence)
    assert record.event.sequence == failure.sequence
    status = api("status_retrieve")
    assert (status.account, [each.id for each in status.stopped]) == ("ada", [paused.digest])
    assert api("installation_retrieve").findings
    page = api("feed_list", last=2)
    assert len(page.results) == 2
    assert api("feed_by_body", body={"cursor": page.next_}).results == []
    assert len(api.lines("feed_ndjson_retrieve", 1, last=1)) == 1
    assert api.lines("feed_sse_retrieve", 1, last=1)[0].partition(":")[0] in ("id", "event", "data")


def _commands(api: Api, story: Story) -> None:
    first = api("tasks_list").results[0].id
    request = {"kind": "SKIP_RECORD", "task": first, "reason": "a typo"}
    plan = api("commands_create", body=request | {"dry_run": True})
    assert (plan.total, plan.tasks) == (1, [first])
    issued = api("commands_create", code=202, body=request, idempotency_key="night")
    assert api("commands_retrieve", id=issued.id).status.value == "ISSUED"
    again = api("commands_create", code=409, body=request)
    assert (again.code, again.pending.id) == ("command_forbidden", issued.id)
    assert (
        api("commands_cancel", id=issued.id, body={"reason": "wrong"}).status.value == "CANCELLED"
    )
    listed = api("commands_list", kind="SKIP_RECORD", actor="ada").results
    assert {each.status.value for each in listed} == {"CANCELLED", "REFUSED"}
    resumed = api("tasks_resume", body={"application": "flights"})
    assert [each.task for each in resumed.results] == [first]
    refused = api("tasks_dismiss", body={"tasks": [first], "reason": "x"})
    assert refused.results[0].refused
    wrong = api("commands_create", code=400, body={"kind": "SKIP_RECORD", "task": first})
    assert (wrong.code, wrong.param) == ("invalid_value", "reason")


def _dead_letters(api: Api, story: Story) -> None:
    story.skips("EWR", 3)
    waiting = api("dead_letters_list", status="open").results
    assert len(waiting) == 3
    where: dict[str, Any] = {"application": "flights", "id": waiting[0].id}
    assert api("dead_letters_retrieve", **where).position == waiting[0].position
    assert api("dead_letters_record_retrieve", **where).state.value == "FAILED"
    [total] = api("dead_letters_totals_list").results
    assert total.count == 3
    assert api("dead_letters_test", code=202, body={}, **where).kind.value == "TEST_DEAD_LETTER"
    scope: dict[str, Any] = {"application": "flights", "reason": "mended"}
    redrive = {**scope, "ids": [waiting[0].id]}
    assert api("dead_letters_redrive", body=redrive | {"dry_run": True}).records == 1
    assert api("dead_letters_redrive", code=202, body=redrive).redrive.records == 1
    gone = api("dead_letters_discard", body={**scope, "ids": [waiting[1].id]})
    assert (gone.discarded, gone.unchanged) == (1, 0)


def _groups(api: Api, story: Story) -> None:
    groups = api("errors_list", sort="-count").results
    assert {each.fingerprint for each in groups} == {TYPO.fingerprint, NA.fingerprint}
    where: dict[str, Any] = {"application": "flights", "fingerprint": TYPO.fingerprint}
    assert api("errors_retrieve", **where).count == 1
    assert api("errors_fields_retrieve", **where).examples >= 0
    assert api("errors_acts", body={"act": "RESOLVE"}, **where).status.value == "RESOLVED"
    [act] = api("errors_history_list", **where).results
    assert (act.actor, act.kind) == ("ada", "ErrorGroupResolved")
    mute: dict[str, Any] = {"act": "MUTE", "failures": 5, "period_seconds": 60}
    mute["groups"] = [{"application": "flights", "fingerprint": NA.fingerprint}]
    [done] = api("errors_acts_many", body=mute).results
    assert done.group.mute.failures == 5
    note = api("notes_create", code=201, body={"text": "seen", **where})
    assert note.actor == "ada"


def _the_rest(api: Api, story: Story) -> None:
    story.send(b"garbled")
    [entry] = api("quarantine_list").results
    done = api("quarantine_acts", number=entry.id, body={"act": "DISMISS", "reason": "garbled"})
    assert done.dismissed_at is not None
    now = datetime.now(UTC)
    alert = models.Alert.objects.create(
        cause="TASKS_PAUSED", critical=True, application="flights", subject="one", title="one",
        path="/", since=now, opened_at=now,
    )  # fmt: skip
    assert [each.id for each in api("alerts_list", open_=True).results] == [alert.id]
    assert api("alerts_acknowledge", id=alert.id).acknowledged_by == "ada"
    created = api("tokens_create", code=201, body={"name": "ci", "days": 3})
    assert created.token
    assert api("tokens_retrieve", id=created.id).name == "ci"
    assert created.id in [each.id for each in api("tokens_list").results]
    api("tokens_destroy", code=204, id=created.id)
    agent = api("agents_create", code=201, body={"application": "flights"})
    assert agent.redis_url
    assert [each.id for each in api("agents_list").results] == [agent.id]
    assert api("agents_retrieve", id=agent.id).application == "flights"
    assert api("agents_destroy", id=agent.id).id == agent.id
    assert api("agents_key_retrieve") is not None
    hook: dict[str, Any] = {"address": "http://127.0.0.1:9/events", "event_types": ["RecordFailed"]}
    added = api("event_subscriptions_create", code=201, body=hook)
    assert added.key
    assert [each.id for each in api("event_subscriptions_list").results] == [added.id]
    replay: dict[str, Any] = {"since": (now - timedelta(hours=1)).isoformat()}
    api("event_subscriptions_replay", id=added.id, body=replay)
    assert api("event_subscriptions_retrieve", id=added.id).application == ""
    api("event_subscriptions_destroy", code=204, id=added.id)
    assert {each.actor for each in api("audit_list").results} == {"ada"}
    api("audit_export_retrieve")
    since = now - timedelta(hours=1)
    api("feed_parquet_retrieve", since=since, until=now + timedelta(minutes=1))
    failure = api("failures_list", key="JFK").results[0]
    where: dict[str, Any] = {"application": "flights", "sequence": failure.sequence}
    missing = api("failures_reveal", code=404, body={"reason": "x"}, **where)
    assert missing.code == "not_found"
