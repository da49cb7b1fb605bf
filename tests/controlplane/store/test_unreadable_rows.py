"""An unreadable row of a view: entries that are folded over it wait and are not quarantined."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from unittest.mock import Mock

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from redis import Redis

from arrester.controlplane import actions, queries, tasks
from arrester.controlplane.history import rebuild
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.redis import reachability
from arrester.controlplane.store import copy_rows
from arrester.domain.errors import BrokenState
from arrester.domain.identity import redis_keys
from tests import histories
from tests.controlplane import streams
from tests.dashboard.accounts import logged_in, make_user
from tests.histories import APPLICATION

pytestmark = pytest.mark.usefixtures("fresh_database")
OTHER = "zebras"


def break_rows(table: str) -> None:
    """Change the rows of a view as another version may write them: the last value is no number for
    us, or a failure has an unknown field."""
    with connection.cursor() as cursor:
        name = "name" if table == "application" else "application"
        cursor.execute(f"SELECT state FROM {table} WHERE {name} = %s", [APPLICATION])
        for (text,) in cursor.fetchall():
            state = json.loads(text)
            if table == "task":
                state["failure"]["severity"] = "high"
            else:
                state["sequence"] = "severity"
            newer = json.dumps(state)
            cursor.execute(f"UPDATE {table} SET state = %s WHERE state = %s", [newer, text])


@pytest.mark.parametrize("broken", ["task", "application", "error_group"])
def test_an_unreadable_row_quarantines_no_batch(
    redis: Redis, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    streams.send(redis, [*histories.started(), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)
    confirmed, before = streams.confirmed(redis), len(streams.log())
    break_rows(broken)
    sent = [streams.send(redis, [histories.failed(position)]) for position in (8, 9)]
    streams.send(redis, [histories.failed(1)], application=OTHER)

    for _ in range(2):
        with pytest.raises(BrokenState, match=f"a row of {broken} cannot be read"):
            fold_stream.fold_stream(APPLICATION)
    assert f"{APPLICATION}: nothing is folded until this is repaired" in caplog.text
    assert fold_stream.fold_stream(OTHER).events == 1
    # Both are there still, their sender keeps them, and it is seen how long they have waited.
    assert queries.quarantine().rows == ()
    assert streams.confirmed(redis) == confirmed
    assert len(streams.log()) == before
    assert queries.lag(APPLICATION).waiting == 2
    # No fold is requested before the key of this one expires: it does not spin.
    assert (
        0
        < redis.pttl(redis_keys.pending_fold(APPLICATION))
        <= redis_keys.PENDING_FOLD_SECONDS * 1000
    )

    rebuild.rebuild(APPLICATION)
    assert fold_stream.fold_stream(APPLICATION).events == 2
    assert streams.confirmed(redis) == confirmed | set(sent)
    streams.assert_exact()


def test_other_applications_are_rebuilt_by_command(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for application in (APPLICATION, OTHER):
        streams.send(redis, histories.started(), application=application)
        fold_stream.fold_stream(application)
        with monkeypatch.context() as patch:
            patch.setattr(copy_rows, "of_events", Mock(side_effect=ValueError("two")))
            streams.send(redis, [histories.failed(2)], application=application)
            fold_stream.fold_stream(application)
    break_rows("application")
    out, error = StringIO(), StringIO()

    with pytest.raises(CommandError, match="1 of 2 applications failed"):
        call_command("requeue", stdout=out, stderr=error)

    assert out.getvalue() == f"{OTHER}: 1 requeued, 0 still invalid\n"
    assert error.getvalue().startswith(f"{APPLICATION}: a row of application cannot be read")


@pytest.mark.parametrize("periodic", [tasks.sweep, actions.watch])
def test_other_applications_are_swept_and_checked(
    redis: Redis, periodic: Callable[[], object]
) -> None:
    now = datetime.now(UTC)
    for application in (APPLICATION, OTHER):
        streams.send(redis, histories.started(), application=application)
        fold_stream.fold_stream(application)
    break_rows("application")
    redis.flushall()
    watched = reachability.Watch(since=now - timedelta(hours=1), last=now)
    redis.set(redis_keys.WATCH, msgspec.json.encode(watched))

    periodic()

    if periodic is tasks.sweep:
        assert redis.exists(redis_keys.state(OTHER))
    else:
        assert all(each.lost for each in queries.instances(OTHER))


@pytest.mark.parametrize("broken", ["application", "thread"])
def test_pages_of_all_applications_show_the_other_rows(
    redis: Redis, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    for application in (APPLICATION, OTHER):
        events = [*histories.started(), *histories.paused()]
        streams.send(redis, events, application=application)
        fold_stream.fold_stream(application)
    break_rows(broken)

    client = logged_in(make_user("ana", "admin"))
    for page in ("/", "/applications", "/metrics", "/api/v1/applications"):
        answer = client.get(page)
        assert (page, answer.status_code) == (page, 200)
        assert OTHER in answer.content.decode()
    assert f"not shown: a row of {broken} cannot be read" in caplog.text


def test_a_list_names_its_unreadable_row(redis: Redis) -> None:
    streams.send(redis, [*histories.started(), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)
    break_rows("task")

    answer = logged_in(make_user("ana", "admin")).get("/api/v1/tasks")

    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("a row of task cannot be read")
    assert "`arrester rebuild` derives it again" in answer.json()["detail"]
