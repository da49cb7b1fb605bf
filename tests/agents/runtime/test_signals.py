from __future__ import annotations

import os
import signal
import threading

import pytest

from arrester.agents.runtime.end.signals import exit_on_signals
from tests.patience import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_ends_the_block_once(number: signal.Signals, raised: type[BaseException]) -> None:
    before = signal.getsignal(number)
    with pytest.raises(raised) as caught, exit_on_signals():
        os.kill(os.getpid(), number)
        threading.Event().wait(PATIENCE_SECONDS)
    assert signal.getsignal(number) is before
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 143


def test_signal_handlers_are_restored_without_a_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with exit_on_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_to_the_jvm_ends_the_block_as_sigterm() -> None:
    with pytest.raises(SystemExit) as caught, exit_on_signals() as forward:
        assert forward is not None
        threading.Thread(target=forward).start()
        threading.Event().wait(PATIENCE_SECONDS)
    assert caught.value.code == 143


def test_a_signal_to_both_processes_ends_the_block_once() -> None:
    with pytest.raises(KeyboardInterrupt), exit_on_signals() as forward:
        assert forward is not None
        jvm = threading.Thread(target=forward)
        jvm.start()
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(PATIENCE_SECONDS)
    # It would end this process.
    jvm.join(PATIENCE_SECONDS)


def test_another_python_thread_does_not_set_signal_handlers() -> None:
    seen: list[object] = []

    def run() -> None:
        with exit_on_signals() as forward:
            seen.extend([signal.getsignal(signal.SIGTERM), forward])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM), None]
