"""`make bench ARGS=…`: measure, and print the ratios."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

from arrester.controlplane import embedded
from benchmarks import servers
from benchmarks.table import Ratio, figures, rates, ratios, rounds_of


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for."""
    options = _options(arguments)
    parts = [_machine()]
    logging.disable(logging.INFO)
    with servers.running() as urls:
        # Django's settings and Spark's agents look for the servers when they are imported.
        for name, part in PARTS.items():
            if options.only in (None, name):
                parts += part(options, urls)
    report = "\n\n".join(parts) + "\n"
    print(f"\n{report}", end="")
    if options.markdown is not None:
        options.markdown.write_text(report)
    return 0


def _fold(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up()
    from benchmarks import fold

    measurements = fold.measurements(events=options.events, toy_events=options.toy_events)
    bound = {name: partial(measure, urls) for name, measure in measurements.items()}
    rounds = rounds_of(bound, rounds=options.rounds, random=Random(), say=_say)
    wanted = [
        Ratio(figure=fold.WHOLE_TWO, yardstick=fold.CEILING, goal="≥ 0.6"),
        Ratio(figure=fold.WHOLE_TWO, yardstick=fold.LIMIT, goal="≥ 1.5"),
        Ratio(figure=fold.WHOLE_TWO, yardstick=fold.TOY, goal="≥ 250"),
        Ratio(figure=fold.WHOLE_TWO, yardstick=fold.RECORDER, goal="≥ 8"),
        Ratio(figure=fold.WHOLE_TWO, yardstick=fold.WHOLE_ONE, goal=""),
    ]
    title = f"## Fold, {options.events:,} events for each application"
    return [_titled(title, options.rounds), rates(rounds, "events/s"), ratios(rounds, wanted)]


def _sustained(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up()
    from benchmarks import sustained

    found = sustained.figures(urls, events=options.sustained_events)
    return ["## Fold, sustained", figures(found)]


def _latency(_options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up()
    from benchmarks import latency

    return ["## Latency", figures(latency.figures(urls))]


def _volume(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up()
    from benchmarks import volume

    title = f"## Room, and deriving the views again, {options.events:,} events"
    return [title, figures(volume.figures(urls, events=options.events))]


def _readers(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up()
    from benchmarks import readers

    return ["## Readers beside writers", figures(readers.figures(urls, seconds=options.seconds))]


def _history(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up_web()
    from benchmarks import history

    title = f"## A week of history, {options.history_events:,} events"
    return [title, figures(history.figures(urls, events=options.history_events))]


def _set_up() -> None:
    import django

    django.setup()


def _set_up_web() -> None:
    """Have connections that do as those of pages do."""
    from arrester.controlplane.web import asgi  # noqa: F401


def _agent(options: argparse.Namespace, _urls: embedded.Urls) -> list[str]:
    from benchmarks import costs, spooling, standing

    each = [
        spooling.microseconds_per_event(events=options.toy_events) for _ in range(options.rounds)
    ]
    spooled = f"Encode and spool, on the pipeline's thread: {median(each):.1f} µs for each event"
    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as name:
        folder = Path(name)
        table, once = costs.measured(
            folder, rows=options.rows, pairs=options.pairs, only=options.cost or ""
        )
        kept = standing.figures(folder, failures=options.rows, only=options.cost or "")
    title = f"## Agent, {options.rows:,} rows, {options.pairs} pairs of runs for each row"
    return [title, table, figures([*once, *kept]), f"{spooled} (goal: ≤ 20 µs)."]


def _pages(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up_web()
    from benchmarks import pages

    few = {"events": 200_000, "applications": 10, "tasks": 10_000, "requests": 20}
    many = {"events": 5_000_000, "applications": 100, "tasks": 10_000, "requests": 60}
    size = few if options.quick else many
    title = "## Pages, {events:,} events, {applications} applications, {tasks:,} tasks in one"
    return [title.format(**size), pages.table(pages.figures(urls, **size))]


def _titled(title: str, rounds: int) -> str:
    return f"{title}\n\nRounds: {rounds}; medians, and the median of the ratios within each round."


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()},"
        f" Python {platform.python_version()}."
    )


PARTS: dict[str, Callable[[argparse.Namespace, embedded.Urls], list[str]]] = {
    "fold": _fold,
    "sustained": _sustained,
    "latency": _latency,
    "volume": _volume,
    "history": _history,
    "readers": _readers,
    "pages": _pages,
    "agent": _agent,
}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small round, about a minute")
    parser.add_argument("--only", choices=list(PARTS), help="leave the other parts out")
    parser.add_argument("--rounds", type=int, help="rounds of each part (5)")
    parser.add_argument("--events", type=int, help="events for each application (100,000)")
    parser.add_argument("--sustained-events", type=int, help="events in all (4,000,000)")
    parser.add_argument("--history-events", type=int, help="events of a week (5,000,000)")
    parser.add_argument("--seconds", type=int, help="seconds that readers and writers run (10)")
    parser.add_argument("--toy-events", type=int, help="events for the toy (3,000)")
    parser.add_argument("--rows", type=int, help="rows for the pipelines (1,000,000)")
    parser.add_argument("--pairs", type=int, help="pairs of runs for each cost (9)")
    parser.add_argument("--cost", help="only costs whose name has this; memory; replaced")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file, too")
    options = parser.parse_args(arguments)
    quick = {
        "rounds": 1,
        "events": 20_000,
        "sustained_events": 400_000,
        "history_events": 100_000,
        "seconds": 3,
        "toy_events": 1_000,
        "rows": 50_000,
        "pairs": 1,
    }
    usual = {
        "rounds": 5,
        "events": 100_000,
        "sustained_events": 4_000_000,
        "history_events": 5_000_000,
        "seconds": 10,
        "toy_events": 3_000,
        "rows": 1_000_000,
        "pairs": 9,
    }
    for name, value in (quick if options.quick else usual).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
