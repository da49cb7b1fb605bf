"""Compare the stored snapshots with the log while a rebuild passes their positions. Correct
states are left alone; the others are stored beside them until the swap."""

from __future__ import annotations

from dataclasses import dataclass, field

from arrester.controlplane import store
from arrester.controlplane.history import rebuild_swap, state_at_position
from arrester.domain.state.keyed_states import StateKeys
from arrester.domain.state.stream_state import StreamState

#: The largest distance of two snapshots, as a multiple of the usual one: live folds leave it when
#: no housekeeper was free. A rebuild adds a snapshot at LATE times the usual distance if there is
#: none.
APART = 3


@dataclass(slots=True)
class Snapshots:
    """The positions that a rebuild has passed, correct or to be corrected."""

    application: str
    passed: list[int] = field(default_factory=list)
    #: Whether anything differs.
    wrong: bool = False

    def next(self, *, after: int) -> int:
        """Return the position of the next snapshot, existing or to be made."""
        position = store.next_snapshot(self.application, after=after)
        farthest = after + APART * state_at_position.EVENTS_PER_SNAPSHOT
        if position is not None and position <= farthest:
            return position
        return after + state_at_position.LATE * state_at_position.EVENTS_PER_SNAPSHOT

    def compare(self, state: StreamState, position: int) -> None:
        """Store the differences of a snapshot: states changed since the last call must be in
        it, and its states must be correct."""
        wanted, deleted = self._corrections(state, position)
        if wanted or deleted:
            rebuild_swap.save_snapshot(self.application, position, wanted, deleted=deleted)
            self.wrong = True
        self.passed.append(position)
        state.changed_keys = StateKeys()

    def _corrections(
        self, state: StreamState, position: int
    ) -> tuple[list[store.StoredState], list[store.StoredState]]:
        """Return the states to write at a position, and those to delete."""
        changed = state_at_position.changed_states(state)
        wanted, deleted = [], []
        for each in store.snapshot_states(self.application, position):
            correct = changed.pop((each.kind, each.key), None)
            if correct is None:
                correct = state_at_position.stored_form(state, each.kind, each.key)
            if correct is None:
                deleted.append(each)
            elif correct != each.state:
                wanted.append(each._replace(state=correct))
        wanted += [store.StoredState(kind, key, text) for (kind, key), text in changed.items()]
        return wanted, deleted

    def swap(self) -> None:
        """Replace the snapshots by the passed, corrected ones."""
        store.delete_snapshots(self.application, but=self.passed)
        if self.wrong:
            rebuild_swap.swap_snapshots(self.application)
