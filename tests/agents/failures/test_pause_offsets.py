"""The cursor of each row's task, found in one literal."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from arrester.agents.failures.pause_offsets import cursor_of_task
from arrester.agents.journal.entries import Cursor
from arrester.agents.worker.columns import TASK

#: Texts that JSON and SQL escape, and others.
TEXTS = ("a", "", " ", "'", '"', "\\", "\n", "\0", "ä", "日本", "🙂", "{}", "null", "t.x")


@pytest.mark.spark
@pytest.mark.parametrize("number", [0, 1, 40, 3_000])
def test_each_task_finds_its_cursor_and_other_tasks_none(spark: SparkSession, number: int) -> None:
    tasks = [f"{TEXTS[n % len(TEXTS)]}{n}" if n >= len(TEXTS) else TEXTS[n] for n in range(number)]
    cursors = {
        task: Cursor(entry=n % 7, position=None if n % 5 == 0 else n - 2**63)
        for n, task in enumerate(tasks)
    }
    others: list[str | None] = [None, "other", *(f"{text}-" for text in TEXTS)]
    rows = spark.createDataFrame([(task,) for task in [*tasks, *others]], f"{TASK} string")

    found = rows.select(TASK, cursor_of_task(cursors)).collect()

    expected: dict[str | None, Cursor | None] = dict.fromkeys(others)
    expected.update(cursors)
    assert {task: at and Cursor(**at.asDict()) for task, at in found} == expected
