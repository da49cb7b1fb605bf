"""The pipeline of Arrester: parse the JSON records of a topic, and write them to files or a topic.

python -m benchmarks.peers.pipeline SERVERS INPUT DEAD-LETTERS CHECKPOINT files|topic OUTPUT
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import functions as F

from arrester import Agent, LogAndContinue
from benchmarks.peers.job import FIELDS
from benchmarks.pipelines import session
from tests import kafka_broker

_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
_RECORDS_PER_MICRO_BATCH = 250_000


def main(arguments: Sequence[str]) -> int:
    """Run it to the end of the topic."""
    servers, topic, dead_letters, checkpoint, kind, output = arguments
    jars = ",".join(map(str, kafka_broker.connector()))
    spark = session(jars=jars, settings={"spark.driver.memory": "2g"})
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _RECORDS_PER_MICRO_BATCH)
        .load()
        .select("topic", "partition", "offset", "value")
    )
    errors = {"errors.dlq.enable": True, "errors.dlq.topic.name": dead_letters}
    agent = Agent(spark, application="peers", errors=errors)
    parsed = F.from_json(F.col("value").cast("string"), _SCHEMA)
    builder = agent.pipeline("records", source)
    builder = builder.deserialize("record", parsed, on_error=LogAndContinue())
    if kind == "files":
        # The other tools do not write the unparsed text either.
        builder = builder.columns("output", value=F.lit(None).cast("binary"))
        pipeline = builder.write_files(output, format="json", number_column="number")
    else:
        builder = builder.columns("output", value=F.to_json("record"))
        pipeline = builder.write_kafka(output)
    with agent:
        pipeline.start(checkpoint, trigger={"availableNow": True})
        agent.await_termination()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
