"""The columns that accompany the author's own, and the outcomes of a record."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

PREFIX: Final = "__arrester_"
#: The source row as read, a struct.
ROW: Final = "__arrester_row"
TASK: Final = "__arrester_task"
POSITION: Final = "__arrester_position"
#: The journal entry that held the record, 0 for a new one: positions are in order within it.
ENTRY: Final = "__arrester_entry"
#: NULL: continues; 0 and up: the step that failed (0 is the source); below 0: HELD, DECIDED,
#: FILTERED.
OUTCOME: Final = "__arrester_outcome"
#: What a Python step raised; NULL for failures of native steps, which are diagnosed afterwards.
ERROR: Final = "__arrester_error"
#: 0 for the first row that a record became, 1 for the second…
ORDINAL: Final = "__arrester_ordinal"
#: Carried through a transform, so that its rows can be joined to their record.
LINK: Final = "__arrester_link"
#: The number of attempts after the first in its Python steps.
RETRIES: Final = "__arrester_retries"
#: Whether no later record of the task was sent.
STOPPED: Final = "__arrester_stopped"
#: Numbers rows, from 1, while the one that crashes `send` is searched.
RANK: Final = "__arrester_rank"
INTERNAL: Final = (ROW, TASK, POSITION, ENTRY, OUTCOME, ERROR, ORDINAL, RETRIES)

#: The error condition of a record whose task or position raised.
TASK_RAISED: Final = "TaskRaised"
POSITION_RAISED: Final = "PositionRaised"

#: The step number of the source itself.
SOURCE: Final = 0
#: Its task is not running: to be held, not evaluated.
HELD: Final = -1
#: A durable decision about it exists: obeyed, not evaluated.
DECIDED: Final = -2
#: A Python step returned None or nothing: the record is done and leaves no row.
FILTERED: Final = -3

#: `names` and `condition` identify the exception, `kind` is its classification; `attempts` are
#: those of the failed operation, and `took_ms` is the time from the start of the first to the end
#: of the last, if measured.
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
