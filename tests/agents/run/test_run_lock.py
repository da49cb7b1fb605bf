"""Requests made inside the run lock are refused, since they would wait for themselves."""

from __future__ import annotations

import threading

import pytest

from arrester.agents.run.run_lock import RunLock, refuse_inside
from arrester.domain.errors import InvalidValue


def test_code_inside_a_run_may_not_wait_for_a_run() -> None:
    run_lock, answers = RunLock(), []

    def ask() -> None:
        refuse_inside("stop()")
        with run_lock.held_within(0.01) as lock:
            answers.append(lock is not None)

    with run_lock.held():
        with pytest.raises(InvalidValue, match="from another Python thread"):
            refuse_inside("stop()")
        # A wait that times out changes nothing.
        with run_lock.held_within(0.01) as again:
            assert again is None
        with pytest.raises(InvalidValue):
            refuse_inside("stop()")
        other = threading.Thread(target=ask)
        other.start()
        other.join()
    refuse_inside("stop()")
    assert answers == [False]
    with run_lock.held_within(0.01) as lock:
        assert lock is not None
