"""What a run with `--durations` ran: sums by folder on the terminal, and a table of the suite."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

TABLE = Path(__file__).parents[1] / "build" / "durations.tsv"
#: A run of fewer tests is no run of the suite.
SUITE = 1_000


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the sums; write seconds and name of each test of the suite, the slowest first."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] += report.duration
    if terminalreporter.config.option.durations is None:
        return
    if len(seconds) >= SUITE:
        TABLE.parent.mkdir(exist_ok=True)
        lines = [f"{duration:.2f}\t{name}\n" for name, duration in _longest(seconds)]
        TABLE.write_text("".join(lines))
    folders: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for name, duration in seconds.items():
        folder = str(Path(name.partition("::")[0]).parent)
        folders[folder] += duration
        counts[folder] += 1
    terminalreporter.section("seconds and tests by folder")
    for folder, duration in _longest(folders):
        terminalreporter.write_line(f"{duration:8.0f} {counts[folder]:5} {folder}")


def _longest(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda each: -each[1])
