"""Counts the modules that an act passes through, and the calls between them."""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.services import REPOSITORY

OURS = tuple(f"{REPOSITORY / name}/" for name in ("agents", "controlplane", "dashboard", "domain"))


@cache
def module_of(code: CodeType) -> str | None:
    """Return the path of the module of ours that has this function; None: it is none of ours."""
    path = str(Path(code.co_filename).resolve())
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    if not path.startswith(OURS) or not is_function:
        return None
    return path.removeprefix(f"{REPOSITORY}/")


@dataclass
class Trip:
    """The calls of functions in other modules, each pair of caller and callee once."""

    calls: set[tuple[CodeType | None, CodeType]] = field(default_factory=set)
    is_counting: bool = False

    @property
    def entries(self) -> Counter[str]:
        """The number of different calls that enter each module."""
        return Counter(str(module_of(callee)) for _, callee in self.calls)

    @property
    def modules(self) -> set[str]:
        """The modules that call, or are called."""
        return {str(module_of(code)) for call in self.calls for code in call if code is not None}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the calls inside the block."""
        self.is_counting = True
        try:
            yield
        finally:
            self.is_counting = False

    def note(self, frame: FrameType, event: str, arg: Any) -> None:
        """Take a call, as a profile function."""
        callee = frame.f_code
        if not self.is_counting or event != "call" or module_of(callee) is None:
            return
        caller = frame.f_back
        while caller is not None and module_of(caller.f_code) is None:
            caller = caller.f_back
        if caller is None or module_of(caller.f_code) != module_of(callee):
            self.calls.add((None if caller is None else caller.f_code, callee))

    def report(self, name: str) -> str:
        """Return modules and calls as text, the most entered module first."""
        lines = [f"{count:4} {module}" for module, count in self.entries.most_common()]
        again = len(self.calls) - len(lines)
        head = f"\n{name}: {len(self.modules)} modules, {again} calls into one entered before"
        return "\n".join([head, *lines])


@contextmanager
def profiled(*trips: Trip, threads: bool) -> Iterator[None]:
    """Profile this thread; with `threads` also all that start inside the block.

    Threads of queries that an earlier test in this process left may start there too.
    """

    def note(frame: FrameType, event: str, arg: Any) -> None:
        for trip in trips:
            trip.note(frame, event, arg)

    if threads:
        threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
