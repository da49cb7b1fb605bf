"""The way of a page of failures: the hops of the docs are true, and no module is added unseen."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from django.test import Client

from tests.dashboard.story import Story
from tests.services import REPOSITORY

OURS = tuple(f"{REPOSITORY / name}/" for name in ("controlplane", "dashboard"))
#: The modules of ours that a page enters. A new one is another file that a reader has to open.
MODULES = 16


def entered(client: Client, url: str) -> set[str]:
    """Return the modules of ours with a function that a request calls."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            found.add(code.co_filename)

    sys.setprofile(note)
    try:
        assert client.get(url).json()["results"]
    finally:
        sys.setprofile(None)
    files = {str(Path(name).resolve()) for name in found}
    return {name.removeprefix(f"{REPOSITORY}/") for name in files if name.startswith(OURS)}


def test_a_page_of_failures_enters_the_modules_of_the_docs(flights: Story, viewer: Client) -> None:
    task = flights.pauses("JFK").digest
    flights.skips("EWR", 40)
    text = REPOSITORY.joinpath("docs/explanation/architecture.md").read_text()
    hops = set(re.findall(r"`(\S+\.py)`", text.split("## A page of failures")[1]))

    for wanted in ("application=flights", f"task={task}"):
        url = f"/api/failures?{wanted}"
        entered(client=viewer, url=url)  # modules are imported, and rows of the session read
        modules = entered(viewer, url)
        assert hops - modules == set(), f"the page does not enter these: {modules}"
        assert len(modules) <= MODULES, modules
