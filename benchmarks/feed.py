"""The feed as lines of JSON: events per second through HTTP, and the memory of the web process."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

import psutil
from django.urls import reverse

from arrester.controlplane import actions, embedded
from benchmarks import seed
from benchmarks.pages import operator
from benchmarks.table import Figure
from tests.dashboard.browser import web

#: The events after which memory is measured first: buffers and plans have their size then.
_WARM_UP = 200_000
_BYTES = 1 << 16


def figures(urls: embedded.Urls, *, events: int, applications: int = 20) -> list[Figure]:
    """Return the rate of the whole log, read by one client, and what memory grows by."""
    seed.seed(urls, events=events, applications=applications)
    operator()
    key = actions.create_token("ana", "benchmarks", actor="ana").text
    with web() as url:
        return _measured(urlsplit(url).netloc, key, events)


def _measured(host: str, key: str, events: int) -> list[Figure]:
    process = psutil.Process(_listening(int(host.rpartition(":")[2])))
    client = http.client.HTTPConnection(host)
    address = reverse("api-feed-ndjson") + "?follow=false"
    client.request("GET", address, headers={"Authorization": f"Token {key}"})
    response = client.getresponse()
    begin, lines, first, largest = time.perf_counter(), 0, 0.0, 0.0
    while chunk := response.read1(_BYTES):
        lines += chunk.count(b"\n")
        memory = process.memory_info().rss / (1 << 20)
        if lines > min(_WARM_UP, events / 2):
            first = first or memory
            largest = max(largest, memory)
    seconds = time.perf_counter() - begin
    client.close()
    if lines < events:
        raise RuntimeError(f"{lines:,} lines of {events:,} events")
    return [
        Figure(name="lines of all events, events/s", value=lines / seconds, goal="≥ 20,000"),
        Figure(name="memory of the web process, MB", value=largest),
        Figure(
            name=f"its growth after {_WARM_UP:,} events, MB", value=largest - first, goal="flat"
        ),
    ]


def _listening(port: int) -> int:
    for each in psutil.Process().children(recursive=True):
        if any(one.laddr.port == port for one in each.net_connections("inet")):
            return each.pid
    raise RuntimeError(f"no process listens on port {port}")
