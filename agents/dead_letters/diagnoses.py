"""The driver's diagnoses of failed records, as a literal that Spark looks them up in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.failure_set import is_in
from arrester.agents.failures.fingerprints import failure_of
from arrester.agents.spark.jvm.plans.catalyst import constant
from arrester.agents.worker.columns import POSITION, SOURCE, TASK

_FIELDS: Final = (
    "struct<exception_class:string,condition:string,message:string,stack:string,fingerprint:string>"
)
#: A record's coordinates as text, as SQL; see `_record_key`.
_RECORD_KEY: Final = (
    f"concat(coalesce('=' || {TASK}, ''), '/', coalesce(CAST({POSITION} AS STRING), ''))"
)


def diagnosis_of(pipeline: Pipeline, diagnosed: Sequence[FailedRecord]) -> Column:
    """Return the diagnosis of a record that failed in a native step or the source.

    It is NULL for any other record. The diagnoses are one literal.
    """
    diagnoses = {
        _record_key(each): {
            "exception_class": each.problem.exception_class,
            "condition": each.problem.condition,
            "message": each.problem.message,
            "stack": each.problem.stack,
            "fingerprint": failure_of(each).fingerprint,
        }
        for each in diagnosed
        if pipeline.is_native(each.number) or each.number == SOURCE
    }
    if not diagnoses:
        return F.expr(f"CAST(NULL AS {_FIELDS})")
    of_json = F.from_json(F.lit(json.dumps(diagnoses)), f"map<string,{_FIELDS}>")
    known = constant(pipeline.source.sparkSession, of_json.alias("diagnoses"))
    diagnosis = F.try_element_at(known, F.expr(_RECORD_KEY))
    # Spark searches a map from its beginning. Most records have another position.
    positions = {each.position for each in diagnosed if each.position is not None}
    is_listed = f"{POSITION} IS NULL"
    if positions:
        is_listed += f" OR {is_in(POSITION, positions)}"
    return F.when(F.expr(is_listed), diagnosis)


def _record_key(record: FailedRecord) -> str:
    """Return a record's coordinates as text. A missing task differs from an empty one."""
    task = "" if record.task is None else f"={record.task}"
    return f"{task}/{'' if record.position is None else record.position}"
