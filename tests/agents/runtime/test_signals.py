from __future__ import annotations

import os
import signal
import threading

import pytest

from arrester.agents.runtime.signals import ending_the_block


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_ends_the_block_once(number: signal.Signals, raised: type[BaseException]) -> None:
    before = signal.getsignal(number)
    with pytest.raises(raised) as caught, ending_the_block():
        os.kill(os.getpid(), number)
        threading.Event().wait(10)
    assert signal.getsignal(number) is before
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 143


def test_without_a_signal_all_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ending_the_block():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_leaves_signals_alone() -> None:
    seen: list[object] = []

    def run() -> None:
        with ending_the_block():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
