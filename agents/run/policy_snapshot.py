"""The error policies of a run as one event, sent right after its start."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec.structs import replace

from arrester.agents.config import AgentConfig, dotted_path, without_secrets
from arrester.agents.decisions.policies import StagePolicy, stage_policies
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.error_policy.settings import DeadLetterSettings
from arrester.agents.handlers import Handler
from arrester.agents.worker.columns import SOURCE
from arrester.domain.error_policy.policy import Response
from arrester.domain.events import PipelineDescribed, StageDescribed

#: Longer texts are shortened.
_CHARACTERS = 500
#: The limit of an event's field; a setting may be any number.
_MAX_INTEGER = 2**63 - 1
#: The text for all retriable classes, in a list of class names.
_RETRIABLE = "retriable failures"
_NOTHING: Mapping[str, Response] = MappingProxyType({})

Origin = Literal["on_error", "configuration", "limit", "default"]


def describe_pipeline(
    pipeline: Pipeline, config: AgentConfig, *, uncaught: str
) -> PipelineDescribed:
    """Return the policy of each stage and of the run, without secrets.

    Raises InvalidConfiguration as `stage_policies` does.
    """
    errors, outage = config.errors, config.errors.outage
    format, place = _dead_letters(errors.dead_letters)
    detects_outages = outage.share is not None
    policies = sorted(stage_policies(pipeline, config).items())
    return PipelineDescribed(
        stages=tuple(_stage(pipeline, *each, config) for each in policies),
        sink=_shorten(pipeline.sink.store.label),
        atomic=pipeline.sink.is_atomic(pipeline.source.sparkSession),
        keyed=pipeline.task is not None,
        tolerance_limit=_clamp(errors.tolerance.limit),
        rate_limit=_clamp(errors.tolerance.rate_limit),
        rate_duration=errors.tolerance.window.value,
        retries_limit=_clamp(errors.retry.limit) or 0,
        retry_timeout_ms=_clamp(errors.retry.timeout_ms) or 0,
        retry_delay_max_ms=_clamp(errors.retry.delay_max_ms) or 0,
        scope=errors.scope.value,
        outage_share=outage.share,
        outage_minimum=_clamp(outage.minimum) or 0 if detects_outages else 0,
        outage_response=outage.response if detects_outages else None,
        dead_letter_format=format,
        dead_letter_place=place,
        uncaught=_shorten(uncaught),
    )


def _stage(
    pipeline: Pipeline, number: int, policy: StagePolicy, config: AgentConfig
) -> StageDescribed:
    """Return the policy of the stage with this number."""
    name, limited = pipeline.stages[number], config.errors.tolerance.configured
    if number == SOURCE:
        return _describe_stage(name, policy, pipeline.on_error, limited=limited, kind="Source")
    if number == pipeline.produce_number:
        sink = pipeline.sink
        # A fatal failure is always answered FAIL unless a handler decides (KIP-210): a limit alone
        # tolerates only the others.
        limited = limited and policy.handler is None
        on = {**sink.on, **({_RETRIABLE: Response.CONTINUE} if limited else {})}
        kind = type(sink).__name__
        return _describe_stage(name, policy, sink.on_error, limited=False, kind=kind, on=on)
    step = pipeline.steps[number - 1]
    kind = type(step).__name__
    stage = _describe_stage(name, policy, step.on_error, limited=limited, kind=kind, on=step.on)
    return replace(stage, step=_shorten(step.name))


def _describe_stage(
    name: str,
    policy: StagePolicy,
    on_error: Handler | None,
    *,
    limited: bool,
    kind: str,
    on: Mapping[str, Response] = _NOTHING,
) -> StageDescribed:
    """Return the policy of a stage; `limited`: a tolerance limit alone lets failures pass."""
    answer, handler = policy.answer, policy.handler
    if handler is None:
        answer = Response.CONTINUE if limited else Response.FAIL
    origin: Origin = "limit" if limited else "default"
    if on_error is not None:
        origin = "on_error"
    elif handler is not None:
        origin = "configuration"
    return StageDescribed(
        name=_shorten(name),
        kind=kind,
        answer=None if answer is None else answer.value,
        handler=None if handler is None else _shorten(dotted_path(handler)),
        origin=origin,
        on={_shorten(name): response.value for name, response in on.items()},
    )


def _dead_letters(settings: DeadLetterSettings) -> tuple[str | None, str | None]:
    if not settings.enable:
        return None, None
    if settings.topic is not None:
        return "kafka", _shorten(f"topic {settings.topic}")
    options = without_secrets(settings.options)
    places = (settings.path, *(options.get(name) for name in ("path", "dbtable", "table")))
    place = next((each for each in places if each), settings.format)
    return settings.format, _shorten(without_secrets({"place": place})["place"])


def _shorten(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"


def _clamp(number: int | None) -> int | None:
    return None if number is None else max(-1, min(number, _MAX_INTEGER))
