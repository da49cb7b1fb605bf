"""A progress bar while a command is in progress; on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from arrester.cli.client import Json


class Waiting:
    """The bar on stderr: of a rollout its answered commands, of others the elapsed time."""

    def __init__(self, title: str, timeout: float) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task(title, total=None, state=f"at most {timeout:.0f} s")

    def __enter__(self) -> Waiting:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def update(self, command: Json) -> None:
        """Show the state of the command, and the progress of a rollout."""
        progress = command.get("progress")
        if progress is None:
            verdict = command.get("verdict")
            held = f", {verdict['held']:,} held records" if verdict else ""
            self._progress.update(self._task, state=f"{command['status']}{held}")
            return
        done = progress["issued"] - progress["open"]
        state = f"{done:,} of {progress['issued'] + progress['waiting']:,} tasks"
        total = progress["issued"] + progress["waiting"]
        self._progress.update(self._task, completed=done, total=total, state=state)
