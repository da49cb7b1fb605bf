"""`make bench ARGS=…`: measure, and print the figures with their goals."""

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
    """Run the chosen parts."""
    options = _options(arguments)
    parts = [_machine()]
    logging.disable(logging.INFO)
    with servers.running() as urls:
        # Django's settings and Spark's agents look for the servers when they are imported.
        for name, part in PARTS.items():
            if options.only == name or (options.only is None and name not in _ALONE):
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
    rounds = rounds_of(bound, rounds=options.rounds, random=Random(), report=_report)
    wanted = [
        Ratio(figure=fold.FOLD, yardstick=fold.LIMIT, goal="≥ 1.2"),
        Ratio(figure=fold.FOLD, yardstick=fold.TOY, goal="≥ 250"),
    ]
    title = f"## Fold, {options.events:,} events for each application"
    note = f"Rounds: {options.rounds}; medians, and the median of the ratios within each round."
    return [title, note, rates(rounds, "events/s"), ratios(rounds, wanted)]


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
    from benchmarks import disk_usage, flow

    title = f"## Disk usage, and deriving the views, {options.events:,} events"
    found = disk_usage.figures(urls, events=options.events)
    return [title, figures(found), "### Flow", figures(flow.disk_usage(urls))]


def _history(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up_web()
    from benchmarks import history

    title = f"## A week of history, {options.history_events:,} events"
    return [title, figures(history.figures(urls, events=options.history_events))]


def _pages(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up_web()
    from benchmarks import pages

    few = {"events": 200_000, "applications": 10, "tasks": 10_000, "requests": 20}
    many = {"events": 5_000_000, "applications": 100, "tasks": 10_000, "requests": 60}
    size = few if options.quick else many
    title = "## Pages, {events:,} events, {applications} applications, {tasks:,} tasks in one"
    return [title.format(**size), pages.table(pages.figures(urls, **size))]


def _feed(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up_web()
    from benchmarks import feed

    title = f"## Feed, {options.history_events:,} events"
    return [title, figures(feed.figures(urls, events=options.history_events))]


def _dead_letters(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up_web()
    from benchmarks import dead_lettering, dead_letters

    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as name:
        written = dead_lettering.figures(Path(name), rows=options.rows // 10, pairs=options.pairs)
    rate, table = dead_letters.measured(urls, rows=options.dead_letters, requests=20)
    return [f"## Dead letters, {options.dead_letters:,}", figures([*written, rate]), table]


def _fleet(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up()
    from benchmarks import fleet

    applications, minutes = options.fleet_applications, options.fleet_minutes
    found, whole = fleet.steps(
        urls,
        applications=applications,
        tasks=100,
        instances=2,
        rates=[500, 1_000, 2_000, 4_000, 6_000, 8_000, 12_000, 16_000],
        step_seconds=options.fleet_step_seconds,
        share=0.8,
        minutes=minutes,
    )
    title = f"## Fleet, {applications} applications, 100 tasks and 2 instances of each"
    long = f"### {minutes:g} minutes at 80% of the limit, with bursts"
    return [title, fleet.table(found), long, fleet.table([whole]), fleet.course(whole)]


def _growth(options: argparse.Namespace, urls: embedded.Urls) -> list[str]:
    _set_up_web()
    from benchmarks import growth

    sizes = [options.history_events * factor // 10 for factor in (1, 3, 10)]
    return ["## Growth", growth.table(urls, sizes=sizes, report=_report)]


def _idle(options: argparse.Namespace, _urls: embedded.Urls) -> list[str]:
    from benchmarks import idle_memory

    found = idle_memory.figures(idle_seconds=options.idle_seconds)
    return ["## Memory of an idle server, MB", figures(found)]


def _agent(options: argparse.Namespace, _urls: embedded.Urls) -> list[str]:
    from benchmarks import agent_overhead, resources, spool

    each = [spool.microseconds_per_event(events=options.toy_events) for _ in range(options.rounds)]
    only = options.cost or ""
    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as name:
        folder = Path(name)
        table = agent_overhead.table(folder, rows=options.rows, pairs=options.pairs, only=only)
        used = resources.figures(folder, failures=options.rows, only=only)
    title = f"## Agent, {options.rows:,} rows, {options.pairs} pairs of runs for each row"
    spooled = f"Encode and spool, on the pipeline's thread: {median(each):.1f} µs per event"
    return [title, table, figures(used), f"{spooled} (goal: ≤ 20 µs)."]


def _held(options: argparse.Namespace, _urls: embedded.Urls) -> list[str]:
    from benchmarks import held

    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as name:
        found = held.figures(Path(name), rows=options.rows)
    return ["## Held records", figures(found)]


def _jdbc(options: argparse.Namespace, _urls: embedded.Urls) -> list[str]:
    from benchmarks import jdbc

    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as name:
        found = jdbc.figures(Path(name), rows=options.rows, pairs=options.pairs)
    return [f"## Table of PostgreSQL, {options.rows:,} rows", figures(found)]


def _lakehouse(options: argparse.Namespace, _urls: embedded.Urls) -> list[str]:
    from benchmarks import lakehouse

    title = f"## Delta and Iceberg tables, {options.rows:,} rows"
    if not lakehouse.has_formats():
        return [title, "Not measured: this Spark has neither; see docs/performance.md."]
    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as name:
        found = lakehouse.figures(Path(name), rows=options.rows, pairs=options.pairs)
    return [title, figures(found)]


def _kafka(options: argparse.Namespace, _urls: embedded.Urls) -> list[str]:
    from benchmarks import kafka

    with tempfile.TemporaryDirectory(prefix="arrester-bench-") as name:
        found = kafka.figures(Path(name), rows=options.rows, pairs=options.pairs)
    return [f"## Kafka topic, {options.rows:,} rows", figures(found)]


def _peers(options: argparse.Namespace, _urls: embedded.Urls) -> list[str]:
    from benchmarks.peers import rates as peers

    only = options.cost or ""
    found = peers.measured(rows=options.rows, rounds=options.rounds, only=only, report=_report)
    title = f"## Beside other tools, {options.rows:,} records, {options.rounds} rounds"
    return [title, peers.table(found)]


def _set_up() -> None:
    import django

    django.setup()


def _set_up_web() -> None:
    """Use the connections of web processes."""
    from arrester.controlplane.web import asgi  # noqa: F401


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()},"
        f" Python {platform.python_version()}."
    )


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


PARTS: dict[str, Callable[[argparse.Namespace, embedded.Urls], list[str]]] = {
    "fold": _fold,
    "sustained": _sustained,
    "latency": _latency,
    "volume": _volume,
    "history": _history,
    "pages": _pages,
    "feed": _feed,
    "dead-letters": _dead_letters,
    "idle": _idle,
    "fleet": _fleet,
    "growth": _growth,
    "agent": _agent,
    "held": _held,
    "jdbc": _jdbc,
    "lakehouse": _lakehouse,
    "kafka": _kafka,
    "peers": _peers,
}
#: Measured only if `--only` names them: their tools have to be downloaded, or they take long.
_ALONE = ("peers", "fleet", "growth")
#: Sizes by option: with `--quick`, and without.
_SIZES = {
    "rounds": (1, 5),
    "events": (20_000, 100_000),
    "sustained_events": (400_000, 4_000_000),
    "history_events": (100_000, 5_000_000),
    "dead_letters": (100_000, 5_000_000),
    "idle_seconds": (20, 120),
    "fleet_applications": (10, 200),
    "fleet_step_seconds": (10, 60),
    "fleet_minutes": (1, 10),
    "toy_events": (1_000, 3_000),
    "rows": (50_000, 1_000_000),
    "pairs": (1, 9),
}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small round of everything")
    parser.add_argument("--only", choices=list(PARTS), help="measure this part only")
    parser.add_argument("--rounds", type=int, help="rounds of the fold (5)")
    parser.add_argument("--events", type=int, help="events for each application (100,000)")
    parser.add_argument("--sustained-events", type=int, help="events in all (4,000,000)")
    parser.add_argument("--history-events", type=int, help="events of a week (5,000,000)")
    parser.add_argument("--dead-letters", type=int, help="dead letters (5,000,000)")
    parser.add_argument("--idle-seconds", type=int, help="before its memory is measured (120)")
    parser.add_argument("--fleet-applications", type=int, help="applications of the fleet (200)")
    parser.add_argument("--fleet-step-seconds", type=int, help="seconds at each rate (60)")
    parser.add_argument("--fleet-minutes", type=int, help="minutes at 80%% of the limit (10)")
    parser.add_argument("--toy-events", type=int, help="events for the toy (3,000)")
    parser.add_argument("--rows", type=int, help="rows for the pipelines (1,000,000)")
    parser.add_argument("--pairs", type=int, help="pairs of runs for each agent row (9)")
    parser.add_argument(
        "--cost", help="only agent rows or peers whose name has this; memory; replaced"
    )
    parser.add_argument("--markdown", type=Path, help="write the tables to this file, too")
    options = parser.parse_args(arguments)
    for name, (quick, usual) in _SIZES.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
