"""Static micro-batches of text lines, and their failed records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.config import AgentConfig
from arrester.agents.decisions.handler_retries import HandlerRetries
from arrester.agents.decisions.judge import Decision, Judge
from arrester.agents.decisions.policies import stage_policies
from arrester.agents.decisions.rules import FailureRules
from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.handlers import LogAndContinue
from arrester.agents.spark.ship_worker_code import ship
from arrester.domain.error_policy.policy import Policy
from tests.agents.pipeline_bench import SCHEMA


def discard(df: DataFrame, number: int) -> None:
    """Write nothing."""


def lines(spark: SparkSession, *values: str) -> DataFrame:
    rows = [("a", position, value) for position, value in enumerate(values)]
    return spark.createDataFrame(rows, SCHEMA).repartition(2)


def pipeline_of(source: DataFrame) -> PipelineBuilder:
    ship(source.sparkSession.sparkContext)
    return define("lines", source, task="task", position="position", value="value")


def failures(source: DataFrame, pipeline: Pipeline) -> dict[int, FailedRecord]:
    """Return the failed records by position."""
    evaluated = evaluate(source, pipeline)
    decision: Decision = judge(pipeline).decide(evaluated.failures, [])
    assert len(decision.examples) == evaluated.failed
    evaluated.release()
    return {each.position: each for each in decision.examples if each.position is not None}


def judge(pipeline: Pipeline, *, examples_limit: int = 100) -> Judge:
    config = AgentConfig.read(
        "tests",
        {
            "deserialization.exception.handler": LogAndContinue,
            "processing.exception.handler": LogAndContinue,
        },
    )
    stages = stage_policies(pipeline, config)
    rules = FailureRules(
        application="tests", pipeline=pipeline, stages=stages, clock=lambda: datetime.now(UTC)
    )
    return Judge(
        rules=rules,
        retries=HandlerRetries(rules=rules, policy=Policy(), wait=lambda wait_ms: None),
        examples_limit=examples_limit,
    )


def by_expression(spark: SparkSession, expression: Column, *values: str) -> dict[int, FailedRecord]:
    source = lines(spark, *values)
    return failures(source, pipeline_of(source).deserialize("parsed", expression).write(discard))


def by_function(spark: SparkSession, fn: Any, *values: str, schema: str | None = None) -> Any:
    source = lines(spark, *values)
    return failures(source, pipeline_of(source).process("step", fn, schema=schema).write(discard))
