"""A driver process from a topic with framed Avro to a table of PostgreSQL or Delta, to be killed.

    python -m tests.agents.kafka_to_table_driver FOLDER SERVERS TOPIC REGISTRY URL USER PASSWORD
    python -m tests.agents.kafka_to_table_driver FOLDER SERVERS TOPIC REGISTRY PATH

It skips paused records while there is a file `skip` in FOLDER, and ends when `stop` appears.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from arrester import Agent, LogAndContinue, LogAndPause, SchemaRegistry
from tests import delta_lake, kafka_broker, postgres_server, schema_registry_process

Row = dict[str, Any]


def plausible(row: Row) -> Row:
    flight = row["flight"]
    if flight["delay"] < 0:
        raise ValueError(f"delay {flight['delay']}")
    return {name: row[name] for name in ("partition", "offset")} | {
        "number": row["flight"]["number"]
    }


def main(folder: Path, servers: str, topic: str, registry: str, *table: str) -> None:
    jars = (
        *kafka_broker.connector(),
        *postgres_server.jdbc_driver(),
        *schema_registry_process.spark_avro(),
        *delta_lake.archives(),
    )
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(map(str, jars)),
        **delta_lake.configuration(),
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    agent = Agent(
        spark,
        application="flights",
        errors={
            "errors.retry.timeout": 600_000,
            "errors.retry.delay.max.ms": 1_000,
            "errors.dlq.enable": True,
            "errors.dlq.path": str(folder / "dlq"),
        },
    )
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40)
        .load()
    )
    builder = (
        agent.pipeline("flights", source)
        .deserialize(
            "flight",
            SchemaRegistry(registry).avro(subject=f"{topic}-value"),
            on_error=LogAndContinue(),
        )
        .process(
            "plausible",
            plausible,
            on_error=LogAndPause(),
            schema="partition INT, offset BIGINT, number BIGINT",
        )
    )
    if len(table) == 1:
        flights = builder.write_delta(*table)
    else:
        url, user, password = table
        login = {"user": user, "password": password}
        flights = builder.write_jdbc("flights", url=url, options=login)
    with agent:
        flights.start(str(folder / "checkpoint"))
        while not (folder / "stop").exists():
            if (folder / "skip").exists():
                for task in agent.paused_tasks():
                    agent.skip(task, reason="known")
            agent.await_termination(0.5)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
