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
#: The journal entry that changed a held record; NULL: it is as the source had it.
MENDED_BY: Final = "__arrester_mended_by"
#: NULL: the record is not decided yet; 0 and up: the number of the step that failed; below 0: HELD,
#: DECIDED or FILTERED.
OUTCOME: Final = "__arrester_outcome"
#: The error of a Python step; NULL for failures of native steps, which are diagnosed afterwards.
ERROR: Final = "__arrester_error"
#: The number of a row among the rows of its record, from 0.
ORDINAL: Final = "__arrester_ordinal"
#: Carried through a transform, so that result rows can be joined to their record.
LINK: Final = "__arrester_link"
#: The number of attempts after the first in its Python steps.
RETRIES: Final = "__arrester_retries"
#: The records of a batch that did not simply pass, as an Arrow stream. NULL: a row for the sink.
PACKED: Final = "__arrester_packed"
#: Whether no later record of the task was sent.
STOPPED: Final = "__arrester_stopped"
#: The number of a row, from 1, while the record that crashes `send` is isolated.
RANK: Final = "__arrester_rank"
INTERNAL: Final = (ROW, TASK, POSITION, ENTRY, OUTCOME, ERROR, ORDINAL, RETRIES)

#: The error condition of a record whose task or position raised.
TASK_RAISED: Final = "TaskRaised"
POSITION_RAISED: Final = "PositionRaised"

#: The number of the source as a step.
SOURCE: Final = 0
#: The task of the record is not running. The record is held and not evaluated.
HELD: Final = -1
#: A durable decision about the record exists. It is obeyed, and the record is not evaluated.
DECIDED: Final = -2
#: A Python step returned None or no rows. The record is done, without a row.
FILTERED: Final = -3

#: `names` and `condition` identify the exception, and `kind` is its classification. If measured,
#: `took_ms` is the time from the start of the first attempt to the end of the last.
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
        # Of exceptions of the JVM only.
        T.StructField("inner_class", T.StringType()),
        T.StructField("inner_condition", T.StringType()),
        T.StructField("field", T.StringType()),
    ]
)
