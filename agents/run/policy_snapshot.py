"""The error policies of a run as one event, sent right after its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from arrester.agents.config import AgentConfig, dotted
from arrester.agents.config_display import without_secrets
from arrester.agents.decisions.policies import StagePolicy, stage_policies
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Files
from arrester.agents.executor.columns import SOURCE
from arrester.agents.failures.failed_record import produce_number, stage_of
from arrester.agents.handlers import Handler
from arrester.controlplane.domain.error_policy.policy import Answer
from arrester.controlplane.domain.error_policy.settings import DeadLetterSettings
from arrester.controlplane.domain.events import PipelineDescribed, StageDescribed

#: Longer texts are cut.
_CHARACTERS = 500
#: The limit of an event's field; a setting may be any number.
_MOST = 2**63 - 1
#: Shown beside class names.
_RETRIABLE = "retriable failures"
_NOTHING: Mapping[str, Answer] = MappingProxyType({})


def described(pipeline: Pipeline, config: AgentConfig, *, uncaught: str) -> PipelineDescribed:
    """Return the policy of each stage and of the run, without secrets.

    Raises InvalidConfiguration as `stage_policies` does.
    """
    errors, outage = config.errors, config.errors.outage
    format, place = _dead_letters(errors.dead_letters)
    judged = outage.share is not None
    policies = sorted(stage_policies(pipeline, config).items())
    return PipelineDescribed(
        stages=tuple(_stage(pipeline, *each, config) for each in policies),
        sink=_sink(pipeline),
        atomic=pipeline.sink.is_atomic(pipeline.source.sparkSession),
        tolerance_limit=_fitted(errors.tolerance.limit),
        rate_limit=_fitted(errors.tolerance.rate_limit),
        rate_duration=errors.tolerance.window.value,
        retries_limit=_fitted(errors.retry.limit) or 0,
        retry_timeout_ms=_fitted(errors.retry.timeout_ms) or 0,
        retry_delay_max_ms=_fitted(errors.retry.delay_max_ms) or 0,
        scope=errors.scope.value,
        outage_share=outage.share,
        outage_minimum=_fitted(outage.minimum) or 0 if judged else 0,
        outage_response=outage.response if judged else None,
        dead_letter_format=format,
        dead_letter_place=place,
        uncaught=_cut(uncaught),
    )


def _stage(
    pipeline: Pipeline, number: int, held: StagePolicy, config: AgentConfig
) -> StageDescribed:
    if number == produce_number(pipeline):
        return _produce(pipeline, held, config)
    name = stage_of(pipeline, number)
    if number == SOURCE:
        given = _Said(pipeline.on_error, held, config.errors.tolerance.configured)
        return given.stage(name, kind="Source")
    step = pipeline.steps[number - 1]
    said = _Said(step.on_error, held, config.errors.tolerance.configured)
    return said.stage(name, kind=type(step).__name__, step=step.name, on=step.on)


def _produce(pipeline: Pipeline, held: StagePolicy, config: AgentConfig) -> StageDescribed:
    # A fatal failure is always answered FAIL unless a handler decides (KIP-210): a limit alone
    # tolerates only the others.
    limited = held.handler is None and config.errors.tolerance.configured
    on = {**pipeline.sink.on, **({_RETRIABLE: Answer.CONTINUE} if limited else {})}
    said = _Said(pipeline.sink.on_error, held, limited=False)
    return said.stage("produce", kind=type(pipeline.sink).__name__, on=on)


@dataclass(frozen=True, slots=True)
class _Said:
    """The origin of a stage's policy: author, configuration, or a limit alone."""

    on_error: Handler | None
    held: StagePolicy
    limited: bool

    def stage(
        self, name: str, *, kind: str, step: str | None = None, on: Mapping[str, Answer] = _NOTHING
    ) -> StageDescribed:
        answer, handler = self.held.answer, self.held.handler
        if handler is None:
            answer = Answer.CONTINUE if self.limited else Answer.FAIL
        return StageDescribed(
            name=_cut(name),
            step=None if step is None else _cut(step),
            kind=kind,
            answer=None if answer is None else answer.value,
            handler=None if handler is None else _cut(dotted(handler)),
            origin=self._origin(),
            on={_cut(each): said.value for each, said in on.items()},
        )

    def _origin(self) -> Literal["on_error", "configuration", "limit", "default"]:
        if self.on_error is not None:
            return "on_error"
        if self.held.handler is not None:
            return "configuration"
        return "limit" if self.limited else "default"


def _sink(pipeline: Pipeline) -> str:
    function = pipeline.sink.function
    return f"{function.format} files" if isinstance(function, Files) else _cut(dotted(function))


def _dead_letters(letters: DeadLetterSettings) -> tuple[str | None, str | None]:
    if not letters.enable:
        return None, None
    if letters.topic is not None:
        return "kafka", _cut(f"topic {letters.topic}")
    options = without_secrets(letters.options)
    named = (letters.path, *(options.get(name) for name in ("path", "dbtable", "table")))
    place = next((each for each in named if each), letters.format)
    return letters.format, _cut(without_secrets({"place": place})["place"])


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"


def _fitted(number: int | None) -> int | None:
    return None if number is None else max(-1, min(number, _MOST))
