"""The function that the JVM calls, after its query has been let go."""

from __future__ import annotations

from typing import Any

import pytest

from arrester.agents.spark.foreach_batch import Callback
from arrester.agents.stop_signal import BatchEnded


def test_a_query_that_was_let_go_commits_nothing() -> None:
    batches: list[int] = []
    callback = Callback(lambda frame, batch: batches.append(batch))
    frame: Any = None
    callback(frame, 1)
    callback.let_go()
    with pytest.raises(BatchEnded):
        callback(frame, 2)
    assert batches == [1]
