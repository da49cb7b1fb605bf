"""How long the last commands of an application took."""

from __future__ import annotations

import msgspec

from arrester.controlplane.queries import sql
from arrester.domain.commands.kinds import KINDS, AppliedBy, Subject

#: The commands that an agent applies between two micro-batches.
_BETWEEN_BATCHES = [
    each.kind.value
    for each in KINDS.values()
    if each.applied_by is AppliedBy.AGENT and each.subject in (Subject.TASK, Subject.STAGE)
]
#: The newest commands that are searched for applied ones, and how many of these are measured.
_NEWEST, _MEASURED = 100, 20


class AppliedTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long the last commands of an application took until agents had applied them."""

    commands: int
    median_seconds: float


def applied_times(application: str) -> AppliedTimes | None:
    """Return how long the last applied commands took; None if none of the last _NEWEST was applied.

    From the issue until the server received the answer of the agent, both by the server's clock.
    """
    count, median = sql.rows(
        f"SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY"
        f" extract(epoch FROM answer.received_at - recent.issued_at)) FROM (SELECT * FROM ("
        f"SELECT issued_at, kind, status, sequence FROM command WHERE application = %s"
        f" ORDER BY issued_at DESC, id DESC LIMIT {_NEWEST}) AS newest"
        f" WHERE status = 'APPLIED' AND kind = ANY(%s) ORDER BY issued_at DESC LIMIT {_MEASURED}"
        ") AS recent CROSS JOIN LATERAL (SELECT received_at FROM batch"
        " WHERE stream = (SELECT id FROM stream WHERE application = %s)"
        " AND sequence <= recent.sequence AND day >= (recent.issued_at AT TIME ZONE 'UTC')::date"
        " ORDER BY sequence DESC LIMIT 1) AS answer",
        [application, _BETWEEN_BATCHES, application],
    )[0]
    return AppliedTimes(commands=count, median_seconds=float(median)) if count else None
