"""The feed as lines of JSON and as Parquet: events per second through HTTP, and the memory of the
web process."""

from __future__ import annotations

import http.client
import io
import time
from urllib.parse import urlsplit

import psutil
import pyarrow.parquet as pq
from django.urls import reverse

from arrester.controlplane import actions, embedded
from benchmarks import seed
from benchmarks.pages import operator
from benchmarks.table import Figure
from tests.dashboard.browser import web

#: The part of a response after which memory is measured first: buffers have their size then.
_WARM_UP = 0.1
_BYTES = 1 << 16


def figures(urls: embedded.Urls, *, events: int, applications: int = 20) -> list[Figure]:
    """Return the rates of the whole log, read by one client, and what memory grows by."""
    seed.seed(urls, events=events, applications=applications)
    operator()
    key = actions.create_token("ana", "benchmarks", actor="ana").text
    found = []
    for name, path, goal in (
        ("lines of JSON", reverse("api-feed-ndjson") + "?follow=false", "≥ 20,000"),
        ("Parquet", reverse("api-feed-parquet"), ""),
    ):
        with web() as url:
            found += _measured(name, urlsplit(url).netloc, path, key, events, goal)
    return found


def _measured(name: str, host: str, path: str, key: str, events: int, goal: str) -> list[Figure]:
    process = psutil.Process(_listening(int(host.rpartition(":")[2])))
    client = http.client.HTTPConnection(host)
    begin = time.perf_counter()
    client.request("GET", path, headers={"Authorization": f"Bearer {key}"})
    response = client.getresponse()
    content, memory = io.BytesIO(), []
    while chunk := response.read1(_BYTES):
        content.write(chunk)
        memory.append(process.memory_info().rss / (1 << 20))
    seconds = time.perf_counter() - begin
    client.close()
    read = content.getvalue()
    # The cursors of the feed are lines, too.
    count = read.count(b'"sequence":') if goal else pq.ParquetFile(content).metadata.num_rows
    if count < events * 0.9:
        raise RuntimeError(f"{name}: {count:,} of {events:,} events")
    warm = memory[int(len(memory) * _WARM_UP) :]
    return [
        Figure(name=f"{name}, events/s", value=count / seconds, goal=goal),
        Figure(name=f"{name}, bytes per event", value=len(read) / count),
        Figure(name=f"{name}, memory of the web process, MB", value=max(warm)),
        Figure(name=f"{name}, its growth, MB", value=max(warm) - warm[0], goal="flat"),
    ]


def _listening(port: int) -> int:
    for each in psutil.Process().children(recursive=True):
        if any(one.laddr.port == port for one in each.net_connections("inet")):
            return each.pid
    raise RuntimeError(f"no process listens on port {port}")
