"""The task grid of an application: a cell per task, on several pages if there are many."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from django.urls import reverse

from arrester.controlplane import queries
from arrester.controlplane.queries import GridPipeline
from arrester.dashboard.components import page_numbers
from arrester.dashboard.components.buttons import PipelineButtons

#: Cells of one pipeline on one page, and the number from which on they are small.
CELLS, DENSE_FROM = 400, 48


class GridPart(NamedTuple):
    """A pipeline, and its tasks on this page."""

    pipeline: GridPipeline
    #: The number of tasks with a row.
    total: int
    first: int
    last: int
    newer: int | None
    older: int | None
    #: None in the past.
    buttons: PipelineButtons | None = None
    #: The page of the error that ended the run; empty without one.
    error_url: str = ""

    @property
    def dense(self) -> bool:
        """Whether cells show one character only."""
        return self.total > DENSE_FROM

    @property
    def truncated(self) -> bool:
        """Whether tasks are left out that no other page shows."""
        return not self.paged and self.last < self.total

    @property
    def paged(self) -> bool:
        """Whether other pages have more of its tasks."""
        return self.newer is not None or self.older is not None


class GridPage(NamedTuple):
    """The part of the grid requested by the URL."""

    pipeline: str
    key: str
    page: int


def requested(pipeline: str, key: str, page: str) -> GridPage:
    """Return the request of the URL's texts; raise InvalidValue."""
    return GridPage(pipeline, key, page_numbers.requested(page))


def parts(application: str, wanted: GridPage) -> list[GridPart]:
    """Return the pipelines of an application with the tasks of the requested page."""
    pipelines = queries.pipelines(
        application,
        only=wanted.pipeline or None,
        key=wanted.key,
        offset=(wanted.page - 1) * CELLS,
        limit=CELLS,
    )
    causes = [
        (application, each.thread.failure.fingerprint)
        for each in pipelines
        if each.thread.failure is not None
    ]
    # Earlier agents report ends without a group.
    groups = queries.groups_by_key(causes)
    return [_part(each, wanted, groups) for each in pipelines]


def parts_then(pipelines: Iterable[GridPipeline]) -> list[GridPart]:
    """Return past pipelines, each with its first tasks."""
    return [
        GridPart(
            pipeline=each,
            total=sum(each.counts.values()),
            first=1,
            last=len(each.tasks),
            newer=None,
            older=None,
        )
        for each in pipelines
    ]


def _part(pipeline: GridPipeline, wanted: GridPage, groups: Container[tuple[str, str]]) -> GridPart:
    failure = pipeline.thread.failure
    key = (pipeline.thread.application, "" if failure is None else failure.fingerprint)
    total = sum(pipeline.counts.values())
    before = (wanted.page - 1) * CELLS
    shown = len(pipeline.tasks)
    more = shown == CELLS if wanted.key else before + shown < total
    return GridPart(
        pipeline=pipeline,
        total=total,
        first=before + 1,
        last=before + shown,
        newer=wanted.page - 1 if wanted.page > 1 else None,
        older=wanted.page + 1 if more else None,
        error_url=reverse("error", args=key) if key in groups else "",
    )
