"""The destination of dead letters that the configuration names."""

from __future__ import annotations

from dataclasses import replace

from arrester.agents.config import AgentConfig
from arrester.agents.dead_letters.destinations import (
    Destination,
    FolderDestination,
    SparkDestination,
)
from arrester.agents.dead_letters.kafka import topic_destination
from arrester.agents.decisions.policies import redaction_of
from arrester.agents.definition.pipeline import Pipeline
from arrester.domain.error_policy.policy import StageKind
from arrester.domain.error_policy.setting_definitions import FILES


def destination_of(pipeline: Pipeline, config: AgentConfig) -> Destination | None:
    """Return the configured destination, None without one; raises DeadLettersUnusable."""
    settings, spark = config.errors.dead_letters, pipeline.source.sparkSession
    if not settings.enable:
        return None
    if settings.topic is not None:
        policy = config.errors.policy(StageKind.PRODUCE)
        topic = topic_destination(pipeline.source, settings, policy)
        return replace(topic, redaction=redaction_of(pipeline, config))
    options = {name: str(value) for name, value in settings.options.items()}
    format = settings.format
    if format in FILES:
        # The configuration reader refuses a file format without a path.
        path = settings.path or ""
        return FolderDestination(spark=spark, format=format, path=path, options=options)
    return SparkDestination(spark=spark, format=format, path=settings.path, options=options)
