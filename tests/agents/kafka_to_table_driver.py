"""A driver process from a topic with framed Avro to a table of PostgreSQL, to be killed.

    python -m tests.agents.kafka_to_table_driver FOLDER SERVERS TOPIC REGISTRY URL USER PASSWORD

It skips paused records while there is a file `skip` in FOLDER, and ends when `stop` appears.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from arrester import Agent, LogAndContinue, LogAndPause, SchemaRegistry
from tests import kafka_broker, postgres_server, schema_registry_process

Row = dict[str, Any]


def plausible(row: Row) -> Row:
    flight = row["flight"]
    if flight["delay"] < 0:
        raise ValueError(f"delay {flight['delay']}")
    return {name: row[name] for name in ("partition", "offset")} | {
        "number": row["flight"]["number"]
    }


def main(folder: Path, servers: str, topic: str, registry: str, *database: str) -> None:
    jars = (
        *kafka_broker.connector(),
        *postgres_server.jdbc_driver(),
        *schema_registry_process.spark_avro(),
    )
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.jars", ",".join(map(str, jars)))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    url, user, password = database
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
    flights = (
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
        .write_jdbc("flights", url=url, options={"user": user, "password": password})
    )
    with agent:
        flights.start(str(folder / "checkpoint"))
        while not (folder / "stop").exists():
            if (folder / "skip").exists():
                for task in agent.paused_tasks():
                    agent.skip(task, reason="known")
            agent.await_termination(0.5)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
