"""One condition that needs a person."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta

from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.domain.identity.names import TaskId

#: The most conditions of one cause in one application, the oldest first; the rest is counted.
MOST = 1000
_DETAIL_MAX = 500

Key = tuple[str, str, str]


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that needs a person; `key` identifies it while it lasts."""

    cause: AlertCause
    application: Annotated[str, Meta(description="Empty: the server itself.")]
    #: What it is about within the application.
    subject: str
    name: Annotated[str, Meta(description="What it is about, within the application.")]
    title: str
    detail: str = ""
    #: The detail in one line, where the name is shown beside it; empty: as `detail`.
    summary: str = ""
    path: Annotated[str, Meta(description="The page about it.")]
    count: Annotated[int, Meta(description="Affected tasks or records.")] = 1
    since: datetime
    pipeline: str | None = None
    fingerprint: str | None = None

    @property
    def line(self) -> str:
        """Why it needs a person, in one line beside its name."""
        return self.summary or self.detail

    @property
    def key(self) -> Key:
        """The identity of the condition."""
        return (self.cause.value, self.application, self.subject)


def rest(application: str, what: str, number: int, *, now: datetime) -> Condition:
    """Return the condition that an application has more of something than are listed."""
    return Condition(
        cause=AlertCause.MORE_THAN_LISTED,
        application=application,
        subject=what,
        name=application,
        title=f"{application}: {number:,} more: {what}",
        summary=f"{number:,} more: {what}",
        detail=f"{MOST:,} are listed; the others have no alert of their own.",
        path=application_path(application),
        count=number,
        since=now,
    )


def bounded(found: Iterable[Condition], *, now: datetime) -> list[Condition]:
    """Return at most `MOST` conditions of each cause in each application, and what counts the
    rest: an application with many does not hide those of others."""
    alike: dict[tuple[str, AlertCause], list[Condition]] = defaultdict(list)
    for each in found:
        alike[each.application, each.cause].append(each)
    kept = []
    for (application, cause), some in alike.items():
        if len(some) > MOST:
            some.sort(key=lambda each: (each.since, each.key))
            kept.append(rest(application, cause.label, len(some) - MOST, now=now))
        kept += some[:MOST]
    return kept


def duration(seconds: float) -> str:
    """Return a duration in words: `5 min`, `3 h`, `2 days`."""
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"


def shortened(text: str) -> str:
    """Return the first lines of a message of any length."""
    text = " ".join(text.split())
    return text if len(text) <= _DETAIL_MAX else f"{text[: _DETAIL_MAX - 1]}…"


# Written out: the workers do not load the pages, which would cost 20 MB in each process.
def task_path(task: TaskId) -> str:
    """Return the path of a task's page."""
    return f"/tasks/{task.digest}"


def error_path(application: str, fingerprint: str) -> str:
    """Return the path of an error group's page."""
    return f"/errors/{quote(application)}/{quote(fingerprint)}"


def pipeline_path(application: str, pipeline: str) -> str:
    """Return the path of a pipeline's page."""
    return f"/pipelines/{quote(application)}/{quote(pipeline)}"


def application_path(application: str, tab: str = "") -> str:
    """Return the path of an application's page."""
    return f"/applications/{quote(application)}{f'?tab={tab}' if tab else ''}"
