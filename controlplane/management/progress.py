"""The progress of a long command: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.core.management.base import OutputWrapper


@contextmanager
def progress(stdout: OutputWrapper, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many of `total` events are done."""
    if not stdout.isatty():
        yield lambda done: _print(stdout, f"{title}: {done:,} of {total:,} events")
        return
    # Imported only if it is used: it needs 7 MB.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, Elapsed(), Remaining(), transient=True) as bars:
        bar = bars.add_task(title, total=total)
        yield lambda done: bars.update(bar, completed=done)


def _print(stdout: OutputWrapper, line: str) -> None:
    stdout.write(line)
    stdout.flush()
