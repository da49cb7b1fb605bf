"""The error policy of each step: the author's, then the configuration's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as evolved

from msgspec.structs import replace
from pyspark.sql import types as T

from arrester.agents.config import AgentConfig
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Columns, Native, Transform
from arrester.agents.failures.payload import Redaction, Reveal
from arrester.agents.handlers import Always, Handler, constant_answer
from arrester.agents.worker.columns import SOURCE
from arrester.domain.error_policy.classify import Kind
from arrester.domain.error_policy.policy import Policy, Response, StageKind
from arrester.domain.error_policy.retry import RetryPolicy
from arrester.domain.errors import InvalidConfiguration, InvalidValue
from arrester.domain.events import StageCommanded


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePolicy:
    """The error policy of one step and its handler."""

    stage: StageKind
    policy: Policy
    handler: Handler | None
    #: The class of a failure is unknown until the driver has diagnosed the record.
    native: bool = False
    #: The executors do not retry: the driver does, record by record.
    retried_on_driver: bool = False

    @property
    def answer(self) -> Response | None:
        """The handler's constant answer; None if it must be called."""
        return constant_answer(self.handler)

    def always(self, answer: Response) -> StagePolicy:
        """Return the policy with one answer for every failure."""
        policy = replace(self.policy, handled=True, by_class={})
        return evolved(self, policy=policy, handler=Always(answer))

    def without_retries(self) -> StagePolicy:
        """Return the policy for failures whose retry budget is used."""
        return evolved(self, policy=replace(self.policy, retry=RetryPolicy()))

    @property
    def needs_each_record(self) -> bool:
        """Whether each failed record is examined individually."""
        if self.retried_on_driver:
            return True
        by_class = set(self.policy.by_class.values())
        if self.native and by_class and by_class != {self.answer}:
            return True
        return self.handler is not None and self.answer is None


def redaction_of(pipeline: Pipeline, config: AgentConfig) -> Redaction:
    """Return the redaction of the configuration and of the author."""
    settings = config.errors
    only = settings.show
    if pipeline.show is not None:
        only = (*(only or ()), *pipeline.show)
    return Redaction(
        drop=(*settings.redact, *pipeline.redact),
        builtin=settings.redact_builtin,
        only=only,
        key=pipeline.key_name,
        key_names=pipeline.key_names,
        fields=tuple(sorted(_fields(pipeline.source.schema))),
        # While the key of the server is replaced, agents have the new one last.
        reveal=Reveal(config.application, config.server_keys[-1]) if settings.reveal else None,
    )


def _fields(kind: T.DataType) -> set[str]:
    """Return the names of all fields of a type, at any depth."""
    match kind:
        case T.StructType():
            return set(kind.names).union(*[_fields(each.dataType) for each in kind.fields])
        case T.ArrayType():
            return _fields(kind.elementType)
        case T.MapType():
            return _fields(kind.keyType) | _fields(kind.valueType)
        case _:
            return set()


def stage_policies(pipeline: Pipeline, config: AgentConfig) -> dict[int, StagePolicy]:
    """Return the policy of each step: the author's handler takes precedence.

    Raises InvalidConfiguration naming each step whose `on` has RETRY without a retry budget.
    """
    _check_budgets(pipeline, config)
    # A record without a usable position is treated as one that cannot be read.
    policies = {SOURCE: _stage_policy(StageKind.DESERIALIZE, pipeline.on_error, {}, config)}
    for number, step in enumerate(pipeline.steps, start=SOURCE + 1):
        native = isinstance(step, Native)
        is_parser = native and not isinstance(step, Columns)
        stage = StageKind.DESERIALIZE if is_parser else StageKind.PROCESS
        policies[number] = _stage_policy(stage, step.on_error, step.on, config, native=native)
        if isinstance(step, Transform) and config.errors.retry.limit != 0:
            policy = replace(policies[number].policy, retry=config.errors.retry)
            policies[number] = evolved(policies[number], policy=policy, retried_on_driver=True)
    sink = pipeline.sink
    produce = _stage_policy(StageKind.PRODUCE, sink.on_error, sink.on, config)
    return policies | {pipeline.produce_number: produce}


def with_overrides(
    pipeline: Pipeline,
    stages: Mapping[int, StagePolicy],
    overrides: Mapping[str, StageCommanded],
) -> dict[int, StagePolicy]:
    """Return the policies with the overrides of operators, by name of the stage.

    An override acts like a handler that always gives this answer, for every class. It takes
    precedence over `on=` and `on_error=`, but not over fatal and self-healing failures.
    """
    policies = dict(stages)
    for number, stage in stages.items():
        override = overrides.get(pipeline.stages[number])
        if override is not None:
            policies[number] = stage.always(Response(override.answer))
    return policies


def _stage_policy(
    stage: StageKind,
    on_error: Handler | None,
    on: Mapping[str, Response],
    config: AgentConfig,
    *,
    native: bool = False,
) -> StagePolicy:
    handler = on_error or config.handlers.get(stage)
    settings = config.errors.policy(stage)
    policy = replace(
        settings,
        handled=handler is not None,
        table=settings.table.extended(Kind.RETRIABLE, _retried_classes(on)),
        # After its retry budget is used, a retried class is handled like any other.
        by_class={name: answer for name, answer in on.items() if answer is not Response.RETRY},
    )
    stage_policy = StagePolicy(stage=stage, policy=policy, handler=handler, native=native)
    # For process steps, the executors use the budget before they report a failure.
    return stage_policy.without_retries() if stage is StageKind.PROCESS else stage_policy


def _check_budgets(pipeline: Pipeline, config: AgentConfig) -> None:
    if config.errors.retry.limit != 0:
        return
    allowed = "a budget to retry with: errors.retries.limit or errors.retry.timeout"
    answers = [*((step.name, step.on) for step in pipeline.steps), ("produce", pipeline.sink.on)]
    names = [name for name, on in answers if _retried_classes(on)]
    if names:
        raise InvalidConfiguration(
            [InvalidValue(f"step {name!r}: on", "RETRY", allowed) for name in names]
        )


def _retried_classes(on: Mapping[str, Response]) -> tuple[str, ...]:
    return tuple(name for name, answer in on.items() if answer is Response.RETRY)
