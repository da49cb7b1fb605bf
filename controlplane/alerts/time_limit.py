"""A limit for the time of one attempt to send."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: A library may catch the exception and go on: it comes again after so long.
_AGAIN_SECONDS = 1.0


class AttemptTooLong(Exception):
    """An attempt was ended at its limit; the text is the reason."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End the block after a time.

    Time-outs of sockets do not bound it: each received byte begins them again. Celery's limits do
    not work in the housekeeper, which runs its tasks itself.

    Raises:
        AttemptTooLong: if the block raised anything after its time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals; the workers of Arrester use it
        return
    is_over = has_ended = False

    def end(*_: object) -> None:
        nonlocal is_over
        if not has_ended:
            is_over = True
            # Libraries treat it as a fault of the network.
            raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        try:
            yield
        finally:
            has_ended = True
    except Exception:
        if is_over:
            raise AttemptTooLong(f"not accepted within {seconds:g} s") from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
