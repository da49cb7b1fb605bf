"""Instances of all applications with their heartbeats."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from arrester.controlplane.domain.state.states import InstanceState
from arrester.controlplane.outbound import heartbeats
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.current_state.states import LIVES, OVER
from arrester.controlplane.queries.results import Page, Running
from arrester.controlplane.views import row_mapping

_STARTED = "coalesce(started_at, to_timestamp(0))"
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def running(
    application: str | None = None,
    *,
    ended: bool = False,
    lost: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Running]:
    """Return the live instances, with `ended` the others; the newest first.

    With `lost` only those that are LOST.
    """
    before = cursors.unpack(cursor, tuple[datetime, UUID])
    where, parameters = cursors.where({"application": application}, f"{_STARTED}, id", before)
    which = f"{'NOT ' if ended else ''}{LIVES}{' AND lost' if lost else ''}"
    found = row_mapping.INSTANCES.load(
        f"{where} AND {which} ORDER BY {_STARTED} DESC, id DESC LIMIT %s",
        [*parameters, OVER, cursors.bounded(limit) + 1],
    )
    page = cursors.page(
        found, limit=limit, key=lambda each: (each.started_at or _BEGINNING, each.id)
    )
    beats = heartbeats.beats([(each.application, each.id) for each in page.rows]) or {}
    return Page(
        rows=tuple(_running(each, beats.get(each.id)) for each in page.rows), next=page.next
    )


def _running(state: InstanceState, beat: heartbeats.Beat | None) -> Running:
    if beat is None or beat.said is None:
        return Running(state=state, heard_at=None if beat is None else beat.heard_at)
    return Running(
        state=state,
        heard_at=beat.heard_at,
        skew_seconds=None if beat.skew is None else beat.skew.total_seconds(),
        spooled=beat.said.spooled,
        spool_bytes=beat.said.spool_bytes,
        spool_since=beat.said.spool_since,
        counted_only=beat.said.counted_only,
    )
