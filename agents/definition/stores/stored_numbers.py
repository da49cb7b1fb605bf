"""Numbers of micro-batches that a table stores with their rows."""

from __future__ import annotations

from arrester.domain.errors import ArresterError


class LaterNumberWritten(ArresterError):
    """The table has a later number than the checkpoint: start with a new one."""


def check_last_number(place: str, last: int, *, checkpoint: str, latest: int) -> None:
    """Raise LaterNumberWritten if the stored number is after the `latest` that a run has used.

    Then its next calls would have stored numbers, and write nothing. `place` has the number.
    """
    if last > latest:
        raise LaterNumberWritten(
            f"{place} has number {last} of checkpoint {checkpoint}, whose last number is {latest}: "
            "the checkpoint is an older copy, or lost its journal. Use a new checkpoint"
        )
