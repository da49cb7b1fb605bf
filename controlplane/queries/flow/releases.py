"""The release of an application at a time: that of its newest instance."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from arrester.controlplane.queries.flow.pipelines import RELEASE
from arrester.controlplane.views import row_mapping

_NEWEST = "application = %s AND started_at <= %s ORDER BY started_at DESC, id DESC LIMIT 1"
_BEFORE = "application = %s AND started_at < %s ORDER BY started_at DESC, id DESC LIMIT %s"
#: The instances among which an earlier release is looked for.
_MOST = 200


class FirstRelease(msgspec.Struct, frozen=True, kw_only=True):
    """The release in which something was seen first."""

    release: Annotated[str, Meta(description="The version of the application.")]
    is_new: Annotated[
        bool, Meta(description="It began with this release: an earlier one had not shown it.")
    ]


def first_release(application: str, first_seen: datetime | None) -> FirstRelease | None:
    """Return the release in which something was first seen; None if no instance has named one.

    It is new with the release if an instance of another release ran before.
    """
    if first_seen is None:
        return None
    newest = row_mapping.INSTANCES.load_readable(_NEWEST, [application, first_seen])
    release = newest[0].versions.get(RELEASE) if newest else None
    if release is None:
        return None
    earlier = row_mapping.INSTANCES.load_readable(_BEFORE, [application, first_seen, _MOST])
    return FirstRelease(
        release=release,
        is_new=any(each.versions.get(RELEASE) != release for each in earlier),
    )
