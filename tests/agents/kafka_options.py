"""A stream with the options of Spark's Kafka source, and without records."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader


class KafkaOptions(DataSource):
    """Takes any schema and any option."""

    @classmethod
    def name(cls) -> str:
        return "kafka_options"

    def simpleStreamReader(self, schema: Any) -> Nothing:
        return Nothing()


class Nothing(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}
