"""The tables of tasks, counters and pipelines, in a notebook and in a terminal."""

from __future__ import annotations

import copy
import pickle
from html.parser import HTMLParser
from uuid import UUID

from arrester.agents.runtime.status import (
    AgentStatus,
    MetricTable,
    TaskTable,
    metrics_of,
    pipelines_of,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import (
    Counters,
    InstanceStatus,
    TaskState,
    TaskStatus,
)
from tests.agents.fake_thread import FakeThread
from tests.agents.pipeline_bench import MemoryOutbox
from tests.agents.sample_events import INSTANCE, NOW, failure


def task(key: str | None, status: TaskStatus = TaskStatus.RUNNING, *, held: int = 0) -> TaskState:
    id = TaskId(application="flights", pipeline="delays", checkpoint="c1", key=key)
    return TaskState(id=id, status=status, held=held)


def paused(key: str | None, message: str) -> TaskState:
    id = TaskId(application="flights", pipeline="delays", checkpoint="c1", key=key)
    return TaskState(
        id=id,
        status=TaskStatus.PAUSED,
        since=NOW,
        position=327_043,
        held=108_802,
        failed=1,
        failure=failure(message),
        counters=Counters(record_failures=2, last_failure_timestamp=NOW),
    )


class Cells(HTMLParser):
    """The tags of a document, and its texts."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_tasks_are_a_table_in_a_terminal() -> None:
    table = TaskTable([task("東京"), paused("JFK", "1000 minutes late")])

    assert str(table).splitlines() == [
        "pipeline  task  state    since                    position     held  failed  cause",
        "--------  ----  -------  -----------------------  --------  -------  ------  " + "-" * 47,
        "delays    JFK   PAUSED   2026-03-04 05:06:07 UTC  327043    108,802       1  "
        "process:validate: ValueError: 1000 minutes late",
        "delays    東京  RUNNING                                           0       0",
    ]


def test_a_table_remains_the_list_or_the_dict_that_it_is() -> None:
    tasks = [task("EWR"), paused("JFK", "bad")]
    table = TaskTable(tasks, if_empty="none")

    assert table == tasks
    assert table[1].position == 327_043
    assert pickle.loads(pickle.dumps(table)) == copy.copy(table) == tasks
    assert metrics_of([], {"events-spooled": 3})["events-spooled"] == 3
    assert metrics_of(tasks, {})["tasks-paused"] == 1
    assert metrics_of(tasks, {})["last-failure-timestamp"] == int(NOW.timestamp() * 1000)


def test_names_with_line_breaks_html_and_control_characters_are_shown_safely() -> None:
    hostile = "a\nb<script>alert(1)</script>\x1b[31m\u202e\ud800&amp;"
    table = TaskTable([paused(hostile, "<img src=x>\r\n")])
    escaped = r"a\nb<script>alert(1)</script>\x1b[31m\u202e\ud800&amp;"

    text = str(table)
    assert len(text.splitlines()) == 3
    assert escaped in text
    assert text.encode().isascii()

    cells = Cells(table._repr_html_())
    assert cells.tags == {"table", "thead", "tbody", "tr", "th", "td"}
    assert escaped in cells.texts
    assert r"process:validate: ValueError: <img src=x>\r\n" in cells.texts


def test_long_keys_and_many_tasks_are_cut_and_the_rest_is_counted() -> None:
    tasks = [task("k" * 80), *(task(str(number)) for number in range(1, 10_000))]
    table = TaskTable([*tasks, task("k" * 512, TaskStatus.DEAD, held=2)])

    header, rule, first, *rows, last = str(table).splitlines()
    assert first.split()[1:6] == ["k" * 60 + "…", "(+452", "characters)", "DEAD", "2"]
    assert len(rows) == 19
    # The note would be as long as the rest.
    assert rows[0].split()[1] == "k" * 80
    assert last == "… and 9,981 more tasks"
    assert "… and 9,981 more tasks" in Cells(table._repr_html_()).texts
    assert max(map(len, [header, rule, first, *rows])) < 160


def test_an_empty_table_is_a_sentence() -> None:
    table = TaskTable(if_empty="No task is PAUSED.")

    assert str(table) == "No task is PAUSED."
    assert Cells(table._repr_html_()).texts == ["No task is PAUSED."]


def test_counters_are_a_table() -> None:
    at = int(NOW.timestamp() * 1000)
    table = MetricTable({"record-failures": 12_345, "last-failure-timestamp": at})

    assert str(table).splitlines()[2:] == [
        "record-failures                          12,345",
        "last-failure-timestamp  2026-03-04 05:06:07 UTC",
    ]
    assert Cells(table._repr_html_()).texts[2:4] == ["record-failures", "12,345"]
    assert str(MetricTable({"last-failure-timestamp": 0})).endswith("last-failure-timestamp")


def test_the_status_has_the_newest_run_of_each_pipeline_and_the_stopped_tasks() -> None:
    def thread(pipeline: str, tasks: list[TaskState]) -> FakeThread:
        return FakeThread(MemoryOutbox(), print, pipeline_name=pipeline, states=tasks)

    earlier, later = thread("delays", []), thread("delays", [paused("JFK", "bad"), task("EWR")])
    later.alive, later.rows_per_second = True, 1234.56
    status = AgentStatus(
        application="flights",
        instance=UUID(int=INSTANCE.int),
        state=InstanceStatus.RUNNING,
        exception=ValueError("no <broker>\n"),
        pipelines=pipelines_of([earlier, thread("routes", []), later]),
        stopped=TaskTable([paused("JFK", "bad")]),
        metrics=metrics_of([], {"events-spooled": 12, "redis-reachable": 0}),
    )

    lines = str(status).splitlines()
    assert lines[:3] == [
        f"application flights, instance {INSTANCE}: RUNNING",
        "Redis is not reachable; 12 events wait in the spool",
        r"failure: ValueError: no <broker>\n",
    ]
    delays, routes = lines[6:8]
    assert delays.split()[:8] == ["delays", "RUNNING", "1,234.6", "1", "0", "108,802", "1", "0"]
    assert routes.split() == ["routes", "DEAD", "0", "0", "0", "0", "0"]
    assert "delays    JFK   PAUSED" in str(status)
    cells = Cells(status._repr_html_())
    assert r"failure: ValueError: no <broker>\n" in cells.texts
    assert {"1,234.6", "108,802", "327043"} <= set(cells.texts)
    assert "broker" not in cells.tags
