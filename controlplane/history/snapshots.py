"""The snapshots that stand, compared with what the log gives at their positions, while a rebuild
passes them. States that are right are left alone; the others lie beside them until the swap."""

from __future__ import annotations

from dataclasses import dataclass, field

from arrester.controlplane import store
from arrester.controlplane.domain.state.stream_state import StreamState, Subjects
from arrester.controlplane.history import rebuild_swap, state_at_position

#: Behind a snapshot so many events may come before the next, as live folds leave it where nobody
#: came in time; where none stands so near, one is made at `past.LATE` times the usual number.
APART = 3


@dataclass(slots=True)
class Snapshots:
    """The positions that a rebuild has passed and found right, or will put right."""

    application: str
    passed: list[int] = field(default_factory=list)
    #: Whether anything lies beside what stands.
    wrong: bool = False

    def next(self, *, after: int) -> int:
        """Return where the next snapshot stands behind a position, or has to be made."""
        stands = store.next_snapshot(self.application, after=after)
        if stands is not None and stands <= after + APART * state_at_position.EVENTS_PER_SNAPSHOT:
            return stands
        return after + state_at_position.LATE * state_at_position.EVENTS_PER_SNAPSHOT

    def compare(self, state: StreamState, position: int) -> None:
        """Put beside what stands at a position in which it is not the state there: what is touched
        since the last call has to be in it, and what is in it has to be true."""
        wanted, gone = self._apart(state, position)
        if wanted or gone:
            rebuild_swap.save_snapshot(self.application, position, wanted, gone=gone)
            self.wrong = True
        self.passed.append(position)
        state.touched = Subjects()

    def _apart(
        self, state: StreamState, position: int
    ) -> tuple[list[store.StoredState], list[store.StoredState]]:
        """Return the states that are to stand at a position, and those that are to go."""
        there = state_at_position.kept_texts(state)
        wanted, gone = [], []
        for each in store.snapshot_states(self.application, position):
            true = there.pop((each.kind, each.key), None)
            if true is None:
                true = state_at_position.kept_text(state, each.kind, each.key)
            if true is None:
                gone.append(each)
            elif true != each.state:
                wanted.append(each._replace(state=true))
        wanted += [store.StoredState(kind, key, text) for (kind, key), text in there.items()]
        return wanted, gone

    def swap(self) -> None:
        """Let the snapshots be those that were passed, and right."""
        store.delete_snapshots(self.application, but=self.passed)
        if self.wrong:
            rebuild_swap.swap_snapshots(self.application)
