"""The progress reports of a streaming query, which Spark makes after each trigger."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

#: Spark keeps a hundred of them (`spark.sql.streaming.numRecentProgressUpdates`).
NO_REPORT = ""


def reports_after(query: StreamingQuery, timestamp: str) -> list[str]:
    """Return the reports that are newer than the one of a timestamp as JSON, oldest first.

    Only new ones are read: each takes several calls to the JVM.
    """
    java_query: Any = query._jsq
    reports = java_query.recentProgress()
    found: list[str] = []
    for index in reversed(range(len(reports))):
        report = reports[index]
        if report.timestamp() == timestamp:
            break
        found.append(report.json())
    return found[::-1]
