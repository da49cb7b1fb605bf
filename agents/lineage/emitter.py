"""The thread that sends run events to OpenLineage, if its standard settings ask for it."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from arrester.agents.lineage.reports import Report, run_event

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

_log = logging.getLogger("arrester.lineage")

#: The most reports that wait; further ones are dropped.
MOST_WAITING = 1000
#: The end of an instance waits so long for its last reports, at most twice.
CLOSE_SECONDS = 2.0
_FILE = "openlineage.yml"


class Emitter:
    """Sends reports in a daemon thread; its failures and waits never affect a pipeline."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Report | None] = queue.Queue(MOST_WAITING)
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="arrester-lineage", daemon=True)
        self._thread.start()

    def emit(self, report: Report) -> None:
        """Queue a report; it is dropped if too many wait."""
        try:
            self._waiting.put_nowait(report)
        except queue.Full:
            _log.debug("a run event is dropped: %d wait", MOST_WAITING)

    def close(self) -> None:
        """Send what waits within some seconds, and end."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)
        self._abandoned = True

    def _run(self) -> None:
        client = _client()
        while not self._abandoned and (report := self._waiting.get()) is not None:
            if client is not None:
                _send(client, report)


def _client() -> OpenLineageClient | None:
    try:
        from openlineage.client import OpenLineageClient

        return OpenLineageClient()
    except ImportError as exc:
        install = "pip install 'arrester[lineage]'"
        _log.warning("no run events are sent: %s is missing: %s", exc.name, install)
    except Exception as exc:  # a setting that the client refuses
        _log.warning("no run events are sent: %s: %s", type(exc).__name__, exc)
    return None


def _send(client: OpenLineageClient, report: Report) -> None:
    try:
        client.emit(run_event(report))
    except Exception as exc:  # of its transport
        name = type(exc).__name__
        _log.warning("a %s event of %s is not sent: %s: %s", report.state, report.job, name, exc)


_emitters: dict[str, Emitter | None] = {}
_lock = threading.Lock()


def emitter_of(application: str) -> Emitter | None:
    """Return the emitter of an application in this process; None if no run events are wanted."""
    with _lock:
        if application not in _emitters:
            _emitters[application] = Emitter() if is_wanted(os.environ) else None
        return _emitters[application]


def close(application: str) -> None:
    """End the emitter of an application; the next `emitter_of` reads the environment again."""
    with _lock:
        emitter = _emitters.pop(application, None)
    if emitter is not None:
        emitter.close()


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the settings of OpenLineage name a transport; without one, its client prints
    events."""
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if environment.get("OPENLINEAGE_URL") or environment.get("OPENLINEAGE_CONFIG"):
        return True
    if any(name.startswith("OPENLINEAGE__TRANSPORT") for name in environment):
        return True
    home = environment.get("HOME")
    folders = [Path.cwd(), *([Path(home) / ".openlineage"] if home else [])]
    return any((folder / _FILE).is_file() for folder in folders)


def namespace_of(environment: Mapping[str, str]) -> str:
    """Return the namespace of jobs."""
    return environment.get("OPENLINEAGE_NAMESPACE", "").strip() or "default"
