"""The columns that travel beside the author's own, and the fates of a record."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

PREFIX: Final = "__arrester_"
#: The source row as it came, a struct.
ROW: Final = "__arrester_row"
TASK: Final = "__arrester_task"
POSITION: Final = "__arrester_position"
#: The journal entry that held the record, 0 for a new one: positions are in order within it.
ENTRY: Final = "__arrester_entry"
#: NULL: goes on; 0 and up: the step that failed (0 is the source); below 0: see the fates.
FATE: Final = "__arrester_fate"
#: What a Python step raised; NULL for failures of native steps, which are looked at afterwards.
ERROR: Final = "__arrester_error"
#: 0 for the first row that a record became, 1 for the second…
ORDINAL: Final = "__arrester_ordinal"
#: What a transform carries along, so that its rows know their record.
LINK: Final = "__arrester_link"
#: How many attempts after the first its Python steps took.
RETRIES: Final = "__arrester_retries"
#: Whether nothing of a task was sent behind what is told of it.
STOPPED: Final = "__arrester_stopped"
#: Numbers rows, from 1, where it is searched for the one that crashes `send`.
RANK: Final = "__arrester_rank"
INTERNAL: Final = (ROW, TASK, POSITION, ENTRY, FATE, ERROR, ORDINAL, RETRIES)

#: What a record fails of whose task or position raised.
TASK_RAISED: Final = "TaskRaised"
POSITION_RAISED: Final = "PositionRaised"

#: The step number of the source itself.
SOURCE: Final = 0
#: Its task is not running: to be held, not evaluated.
HELD: Final = -1
#: A durable decision about it exists already: obeyed, not evaluated.
DECIDED: Final = -2
#: A Python step returned None or nothing: the record is done and leaves no row.
FILTERED: Final = -3

#: `names` and `condition` are what the exception is known by, `kind` what that means; `attempts`
#: are those of the operation that failed, and `took_ms` is from the first one's beginning to the
#: last one's end, where somebody looked at a clock.
ERROR_TYPE: Final = T.StructType(
    [
        T.StructField("exception_class", T.StringType()),
        T.StructField("message", T.StringType()),
        T.StructField("stack", T.StringType()),
        T.StructField("frame", T.StringType()),
        T.StructField("names", T.ArrayType(T.StringType())),
        T.StructField("condition", T.StringType()),
        T.StructField("kind", T.StringType()),
        T.StructField("attempts", T.IntegerType()),
        T.StructField("took_ms", T.LongType()),
    ]
)
