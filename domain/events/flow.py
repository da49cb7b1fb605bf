"""What flows through a run: one event for each minute in which it did anything."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from arrester.domain.events.parts import Count, Data, Moment

#: What the backlog of a source is counted in.
BacklogUnit = Literal["records", "files", "bytes"]
#: The fields that are added up.
FLOW_COUNTS: Final = (
    "micro_batches", "records_in", "records_out", "failed", "skipped", "held", "drained",
)  # fmt: skip


class FlowMeasured(Data, frozen=True, kw_only=True, tag=True):
    """The micro-batches of a run that Spark committed in one minute, and its held records that
    were processed.

    A run that ends in the middle of a minute reports that minute at once; further counts of the
    same minute come with further events, and are added. Each record is counted once, however often
    its micro-batch is repeated: `records_in + drained = records_out + skipped + held`.
    """

    #: The beginning of the minute, by the clock of the agent.
    minute: Moment
    micro_batches: Count = 0
    #: Records read from the source.
    records_in: Count = 0
    #: Records whose rows, if the steps left any, are in the sink.
    records_out: Count = 0
    #: Records that failed for the first time, at any stage.
    failed: Count = 0
    #: Records left out by a decision or by a person.
    skipped: Count = 0
    #: Records held in place of being processed.
    held: Count = 0
    #: Records held before, and now written or skipped.
    drained: Count = 0
    #: How many micro-batches took how long, by `phase:bucket`, see `domain.durations`.
    durations: dict[str, Count] = msgspec.field(default_factory=dict)
    #: The end of the last micro-batch.
    last_batch_at: Moment | None = None
    #: What the source had after the last micro-batch that was not read yet; None: it reports none.
    backlog: Count | None = None
    backlog_unit: BacklogUnit | None = None
    #: Spark's watermark for event times.
    watermark: Moment | None = None
