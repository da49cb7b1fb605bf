"""The task grid of an application: a cell per task, on several pages if there are many."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from django.urls import reverse

from arrester.controlplane import queries
from arrester.controlplane.queries import GridPipeline
from arrester.dashboard.components import page_numbers
from arrester.dashboard.components.buttons import PipelineButtons
from arrester.domain.state.states import ThreadState

#: Pipelines on one page.
PIPELINES = 20
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
    #: The buttons of the pipeline; None for a state in the past.
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
    """The part of the grid requested by the URL: a page of the tasks of a pipeline, or without one
    a page of pipelines."""

    pipeline: str
    key: str
    page: int

    @property
    def section(self) -> queries.Section:
        """The page of pipelines."""
        return queries.Section(number=1 if self.pipeline else self.page, size=PIPELINES)

    @property
    def task_page(self) -> int:
        """The page of the tasks of each pipeline."""
        return self.page if self.pipeline else 1

    def part(self, total: int) -> page_numbers.Part:
        """Return which of all pipelines are on the page."""
        return page_numbers.part(self.section.number, size=PIPELINES, total=total)


def requested(pipeline: str, key: str, page: str) -> GridPage:
    """Return the request of the URL's texts; raise InvalidValue."""
    return GridPage(pipeline, key, page_numbers.requested(page))


def context(
    application: str,
    wanted: GridPage,
    buttons_of: Callable[[list[ThreadState]], Mapping[str, PipelineButtons]],
) -> dict[str, object]:
    """Return the context of the pipelines of an application with the tasks of the requested page,
    and with their buttons."""
    grid = queries.pipelines(
        application,
        only=wanted.pipeline or None,
        key=wanted.key,
        offset=(wanted.task_page - 1) * CELLS,
        limit=CELLS,
        section=wanted.section,
    )
    causes = [
        (application, each.thread.failure.fingerprint)
        for each in grid.pipelines
        if each.thread.failure is not None
    ]
    # Earlier agents report ends without a group.
    groups = queries.groups_by_key(causes)
    offered = buttons_of([each.thread for each in grid.pipelines])
    parts = [_part(each, wanted, groups, offered[each.thread.pipeline]) for each in grid.pipelines]
    return {"parts": parts, "wanted": wanted, "pipeline_part": wanted.part(grid.total)}


def context_then(grid: queries.PipelineGrid, wanted: GridPage) -> dict[str, object]:
    """Return the context of past pipelines, each with its first tasks."""
    parts = [
        GridPart(
            pipeline=each,
            total=sum(each.counts.values()),
            first=1,
            last=len(each.tasks),
            newer=None,
            older=None,
        )
        for each in grid.pipelines
    ]
    return {"parts": parts, "wanted": wanted, "pipeline_part": wanted.part(grid.total)}


def _part(
    pipeline: GridPipeline,
    wanted: GridPage,
    groups: Container[tuple[str, str]],
    buttons: PipelineButtons,
) -> GridPart:
    failure = pipeline.thread.failure
    key = (pipeline.thread.application, "" if failure is None else failure.fingerprint)
    total = sum(pipeline.counts.values())
    page = wanted.task_page
    before = (page - 1) * CELLS
    shown = len(pipeline.tasks)
    more = shown == CELLS if wanted.key else before + shown < total
    return GridPart(
        pipeline=pipeline,
        total=total,
        first=before + 1,
        last=before + shown,
        newer=page - 1 if page > 1 else None,
        older=page + 1 if more else None,
        buttons=buttons,
        error_url=reverse("error", args=key) if key in groups else "",
    )
