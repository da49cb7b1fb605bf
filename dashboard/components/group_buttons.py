"""Which buttons of an error group, or of many, are enabled, and why the others are not."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID, uuid5

from arrester.controlplane.domain.state import error_groups
from arrester.controlplane.domain.state.error_groups import GroupAct
from arrester.controlplane.domain.state.states import GroupState, GroupStatus
from arrester.dashboard.permissions import NOT_AN_OPERATOR, Person

_FORMS = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e23")


class ManyButton(NamedTuple):
    """A button for the selected groups of a list, and the past participle of its act."""

    act: GroupAct
    word: str
    done: str
    picture: str
    key: str


MANY = {
    each.act: each
    for each in (
        ManyButton(GroupAct.RESOLVE, "Resolve", "resolved", "check", "e"),
        ManyButton(GroupAct.REOPEN, "Reopen", "reopened", "again", "e"),
        ManyButton(GroupAct.MUTE, "Mute", "muted", "mute", "m"),
        ManyButton(GroupAct.UNMUTE, "Unmute", "unmuted", "bell", "m"),
    )
}


class GroupButton(NamedTuple):
    """A button, and the id that makes a double click one act."""

    act: GroupAct
    why_not: str
    id: UUID

    @property
    def works(self) -> bool:
        """Whether it is enabled."""
        return not self.why_not


def on_many(state: str | None) -> list[ManyButton]:
    """Return the buttons of a list of groups that are all in one state; None: any state."""
    if state is None:
        return [*MANY.values()]
    status = GroupStatus(state)
    return [each for each in MANY.values() if error_groups.refusal(each.act, status) is None]


def buttons(who: Person, group: GroupState) -> dict[str, GroupButton]:
    """Return the buttons of a group's page, by act."""
    return {act.value: _button(who, act, group) for act in GroupAct}


def _button(who: Person, act: GroupAct, group: GroupState) -> GroupButton:
    name = f"{who.name}\0{act}\0{group.application}\0{group.fingerprint}\0{group.status_sequence}"
    why_not = error_groups.refusal(act, group.status) or "" if who.may_act else NOT_AN_OPERATOR
    return GroupButton(act, why_not, uuid5(_FORMS, name))
