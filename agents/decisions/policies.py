"""What holds for failures of each step: the author's word, then the configuration's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as evolved

from msgspec.structs import replace
from pyspark.sql import types as T

from arrester.agents.config import AgentConfig
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Columns, Deserialize, Transform
from arrester.agents.executor.columns import SOURCE
from arrester.agents.failures.failed_record import produce_number, stage_of
from arrester.agents.failures.payload import Redaction
from arrester.agents.handlers import Always, Handler, constant_answer
from arrester.controlplane.domain.error_policy.classify import Kind
from arrester.controlplane.domain.error_policy.policy import Answer, Policy, StageKind
from arrester.controlplane.domain.error_policy.retry import RetryPolicy
from arrester.controlplane.domain.errors import InvalidConfiguration, InvalidValue
from arrester.controlplane.domain.events import StageCommanded


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePolicy:
    """What is said about failures of one step, and who is asked."""

    stage: StageKind
    policy: Policy
    handler: Handler | None
    #: The class of a failure is not known before the record is looked at on the driver.
    native: bool = False
    #: The executors have not tried it again: the driver does, each failed record by itself.
    tries: bool = False

    @property
    def answer(self) -> Answer | None:
        """The handler's answer that is known beforehand; None when it has to be asked."""
        return constant_answer(self.handler)

    @property
    def asks(self) -> bool:
        """Whether each failed record has to be looked at by itself."""
        if self.tries:
            return True
        by_class = set(self.policy.by_class.values())
        if self.native and by_class and by_class != {self.answer}:
            return True
        return self.handler is not None and self.answer is None


def redaction_of(pipeline: Pipeline, config: AgentConfig) -> Redaction:
    """Return what of a record may leave: what the configuration drops, and the author more."""
    show = config.errors.show
    if pipeline.show is not None:
        show = (*(show or ()), *pipeline.show)
    settings = config.errors
    given = settings.redact if settings.redact_given else ()
    return Redaction(
        drop=(*given, *pipeline.redact),
        usual=() if settings.redact_given else settings.redact,
        only=show,
        key=pipeline.key_name,
        key_names=pipeline.key_names,
        fields=tuple(sorted(_fields(pipeline.source.schema))),
    )


def _fields(kind: T.DataType) -> set[str]:
    """Return the names of all fields of a type, at any depth."""
    match kind:
        case T.StructType():
            inner = [_fields(each.dataType) for each in kind.fields]
            return set(kind.names).union(*inner)
        case T.ArrayType():
            return _fields(kind.elementType)
        case T.MapType():
            return _fields(kind.keyType) | _fields(kind.valueType)
        case _:
            return set()


def stage_policies(pipeline: Pipeline, config: AgentConfig) -> dict[int, StagePolicy]:
    """Return what holds for each step: the author's handler goes before the configuration's.

    Raises InvalidConfiguration with each step whose `on` says RETRY without a budget for it.
    """
    _check_budgets(pipeline, config)
    # A record without a usable position is judged like one that cannot be read.
    policies = {SOURCE: _stage_policy(StageKind.DESERIALIZE, pipeline.on_error, {}, config)}
    for number, step in enumerate(pipeline.steps, start=SOURCE + 1):
        native = isinstance(step, Deserialize | Columns)
        stage = StageKind.DESERIALIZE if isinstance(step, Deserialize) else StageKind.PROCESS
        policies[number] = _stage_policy(stage, step.on_error, step.on, config, native=native)
        if isinstance(step, Transform) and config.errors.retry.limit != 0:
            policy = replace(policies[number].policy, retry=config.errors.retry)
            policies[number] = evolved(policies[number], policy=policy, tries=True)
    sink = pipeline.sink
    produce = _stage_policy(StageKind.PRODUCE, sink.on_error, sink.on, config)
    return policies | {produce_number(pipeline): produce}


def commanded(
    pipeline: Pipeline,
    stages: Mapping[int, StagePolicy],
    answers: Mapping[str, StageCommanded],
) -> dict[int, StagePolicy]:
    """Return what holds where people have set answers, by the name of the stage.

    Such an answer is that of a handler which always gives it, to every class that is asked about:
    it goes before `on=` and `on_error=`, and never before what is fatal or heals itself.
    """
    found = dict(stages)
    for number, held in stages.items():
        said = answers.get(stage_of(pipeline, number))
        if said is not None:
            policy = replace(held.policy, handled=True, by_class={})
            handler = Always(Answer(said.answer))
            found[number] = evolved(held, policy=policy, handler=handler)
    return found


def _stage_policy(
    stage: StageKind,
    on_error: Handler | None,
    on: Mapping[str, Answer],
    config: AgentConfig,
    *,
    native: bool = False,
) -> StagePolicy:
    handler = on_error or config.handlers.get(stage)
    policy = config.errors.policy(stage)
    policy = replace(
        policy,
        handled=handler is not None,
        table=policy.table.extended(Kind.RETRIABLE, _retried(on)),
        # Once its budget is spent, a class that is retried falls through like any other.
        by_class={name: answer for name, answer in on.items() if answer is not Answer.RETRY},
    )
    if stage is StageKind.PROCESS:
        # The executors have spent the budget before they tell of a failure.
        policy = replace(policy, retry=RetryPolicy())
    return StagePolicy(stage=stage, policy=policy, handler=handler, native=native)


def _check_budgets(pipeline: Pipeline, config: AgentConfig) -> None:
    if config.errors.retry.limit != 0:
        return
    allowed = "a budget to retry with: errors.retries.limit or errors.retry.timeout"
    given = [*((step.name, step.on) for step in pipeline.steps), ("produce", pipeline.sink.on)]
    faults = [
        InvalidValue(f"step {name!r}: on", "RETRY", allowed) for name, on in given if _retried(on)
    ]
    if faults:
        raise InvalidConfiguration(faults)


def _retried(on: Mapping[str, Answer]) -> tuple[str, ...]:
    return tuple(name for name, answer in on.items() if answer is Answer.RETRY)
