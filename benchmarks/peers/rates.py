"""Records per second of each tool, for topics with more and more malformed records."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from uuid import uuid4

from arrester.controlplane.embedded import process
from benchmarks.peers.job import Input, Job, count_bytes, count_lines, count_messages
from benchmarks.peers.tools import TOOLS, Tool
from benchmarks.table import Rounds, rounds_of
from tests import kafka_broker
from tests.kafka_broker import KafkaBroker

#: Of each so many records, one is malformed.
SHARES = {"0%": 0, "0.1%": 1_000, "1%": 100}
#: Of a short run, which takes as long as a tool needs to start and to stop. Its topic has malformed
#: records, too: the first one takes a tool longer than the others.
_FEW = 1_000
_POLL_SECONDS = 0.1
_LIMIT_SECONDS = 900.0
_STOP_SECONDS = 30.0


def measured(*, rows: int, rounds: int, only: str, report: Callable[[str], None]) -> Rounds:
    """Return the rates of the tools whose name has `only`."""
    few, many = (
        {share: Input(records=records, malformed_every=every) for share, every in SHARES.items()}
        for records in (_FEW, rows)
    )
    with kafka_broker.running() as broker:
        for each in (*few.values(), *many.values()):
            each.send(broker)
        measurements = {
            _measurement(tool, share): partial(_rate, broker, tool, few[share], topic)
            for tool in TOOLS
            if only in tool.name
            for share, topic in many.items()
        }
        return rounds_of(measurements, rounds=rounds, random=Random(), report=report)


def table(rounds: Rounds) -> str:
    """Return the medians of the rates, and of the ratios to the rate without malformed records."""
    clean, *others = SHARES
    ratios = [f"{share} ÷ {clean}" for share in others]
    titles = ["records/s", *(f"{share} malformed" for share in SHARES), *ratios]
    lines = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * (len(titles) - 1)}"]
    for tool in TOOLS:
        if _measurement(tool, clean) not in rounds:
            continue
        each = {share: rounds[_measurement(tool, share)] for share in SHARES}
        figures = [f"{median(rates):,.0f}" for rates in each.values()]
        figures += [f"{_ratio(each[share], each[clean]):.2f}" for share in others]
        lines.append(f"| {tool.name} | {' | '.join(figures)} |")
    return "\n".join(lines)


def _ratio(rates: Sequence[float], clean: Sequence[float]) -> float:
    return median(rate / of for rate, of in zip(rates, clean, strict=True))


def _measurement(tool: Tool, share: str) -> str:
    return f"{tool.name}, {share}"


def _rate(broker: KafkaBroker, tool: Tool, few: Input, many: Input) -> float:
    seconds = _seconds(broker, tool, many) - _seconds(broker, tool, few)
    return (many.records - few.records) / seconds


def _seconds(broker: KafkaBroker, tool: Tool, topic: Input) -> float:
    """Return the time from the start of a tool until all records are written."""
    with tempfile.TemporaryDirectory(prefix="arrester-peers-") as folder:
        job = Job(broker=broker, input=topic, folder=Path(folder), name=f"r{uuid4().hex[:8]}")
        job.make_topics()
        seconds = _run(tool, job)
        found = _written(tool, job)
        job.delete_topics()
    if found != _wanted(tool, job):
        raise RuntimeError(f"{tool.name}: {found} records and dead letters, of {topic}")
    return seconds


def _run(tool: Tool, job: Job) -> float:
    # The first command of a tool may download it.
    command, log = tool.command(job), job.folder / "log"
    begin = time.perf_counter()
    child = process.start(command, log=log)
    try:
        while child.poll() is None and (tool.ends or not _is_complete(tool, job)):
            if time.perf_counter() > begin + _LIMIT_SECONDS:
                raise TimeoutError(f"{tool.name} did not end: {_end_of(log)}")
            time.sleep(_POLL_SECONDS)
        seconds = time.perf_counter() - begin
        if child.poll() != (0 if tool.ends else None):
            raise RuntimeError(f"{tool.name} ended: {_end_of(log)}")
        return seconds
    finally:
        process.stop(child, signal.SIGTERM, seconds=_STOP_SECONDS)


def _is_complete(tool: Tool, job: Job) -> bool:
    """Whether all records are written. Files that grow are not read."""
    size = count_bytes(job.files)
    time.sleep(_POLL_SECONDS)
    return count_bytes(job.files) == size and _written(tool, job) == _wanted(tool, job)


def _written(tool: Tool, job: Job) -> tuple[int, int]:
    """Return the numbers of records and dead letters that were written."""
    records = count_lines(job.files) if tool.files else count_messages(job.broker, job.output)
    return records, count_messages(job.broker, job.dead_letters)


def _wanted(tool: Tool, job: Job) -> tuple[int, int]:
    malformed = job.input.malformed
    return job.input.records - malformed, malformed if tool.dead_letters else 0


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-3_000:]
