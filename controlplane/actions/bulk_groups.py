"""One act on many error groups; a refusal of one does not affect the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from django.db import DataError
from msgspec.structs import replace

from arrester.controlplane.actions.groups import act_on_group
from arrester.controlplane.actions.transaction import check_text
from arrester.controlplane.domain.errors import GroupRefused, InvalidValue, NotFound
from arrester.controlplane.domain.identity import uuids
from arrester.controlplane.domain.state.error_groups import GroupRequest, decide
from arrester.controlplane.domain.state.states import GroupState

#: The most error groups of one act.
MOST_GROUPS = 100


class ActedOn(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one error group of many."""

    application: str
    fingerprint: str
    #: None if nothing was done: its state forbids it, or it does not exist; `refused` has the
    #: reason.
    group: GroupState | None
    refused: str = ""


def act_on_groups(groups: Sequence[tuple[str, str]], requested: GroupRequest) -> list[ActedOn]:
    """Resolve, reopen, mute or unmute error groups, each named by application and fingerprint.

    Each gets a request with its own fingerprint, whose id is derived from that of `requested` and
    the group: a repetition changes nothing. Raises InvalidValue for no group, too many, or a mute
    without an end, before anything is done; a fault of one group is in its result.
    """
    each = list(dict.fromkeys(groups))
    if not 1 <= len(each) <= MOST_GROUPS:
        raise InvalidValue("groups", len(each), f"1 to {MOST_GROUPS} error groups at once")
    check_text(actor=requested.actor, reason=requested.reason)
    decide(requested, now=datetime.now(UTC))
    return [_act(application, fingerprint, requested) for application, fingerprint in each]


def _act(application: str, fingerprint: str, requested: GroupRequest) -> ActedOn:
    id = uuids.part_of(requested.id, f"{application}/{fingerprint}")
    try:
        group = act_on_group(application, replace(requested, id=id, fingerprint=fingerprint))
    except (GroupRefused, NotFound, InvalidValue, DataError) as refused:
        return ActedOn(
            application=application, fingerprint=fingerprint, group=None, refused=str(refused)
        )
    return ActedOn(application=application, fingerprint=fingerprint, group=group)
