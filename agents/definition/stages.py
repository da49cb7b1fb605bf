"""The stages of a pipeline, in order, as handlers and the log show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T

from arrester.agents.config import dotted_path, without_secrets
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Producer, Sink
from arrester.agents.definition.steps import Step
from arrester.agents.handlers import Stage


def stages_of(pipeline: Pipeline) -> tuple[Stage, ...]:
    """Return the source, each step and the sink, with class and configuration."""
    source: dict[str, object] = {"schema": pipeline.source.schema.simpleString()}
    for name in ("task", "position", "key", "value"):
        expression = getattr(pipeline, name)
        if expression is not None:
            source[name] = str(expression)
    return (
        Stage(name="source", kind="Source", config=without_secrets(source)),
        *[
            Stage(name=step.stage, kind=type(step).__name__, config=_config(step))
            for step in pipeline.steps
        ],
        Stage(name="produce", kind=type(pipeline.sink).__name__, config=_config(pipeline.sink)),
    )


def _config(part: Step | Sink | Producer) -> dict[str, str]:
    # A field without repr is not an argument of the author.
    given = {field.name: getattr(part, field.name) for field in fields(part) if field.repr}
    texts = {name: _text(value) for name, value in given.items() if not _is_empty(value)}
    return without_secrets(texts)


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, Mapping) and not value)


def _text(value: Any) -> str:
    if isinstance(value, T.StructType):
        return value.simpleString()
    if isinstance(value, Mapping):
        inner = without_secrets({str(name): _text(item) for name, item in value.items()})
        return ", ".join(f"{name}: {item}" for name, item in inner.items())
    if isinstance(value, Column | str | bool | int):
        return str(value)
    return dotted_path(value)
