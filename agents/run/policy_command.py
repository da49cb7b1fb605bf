"""Operator override of a stage's error policy, kept across runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from arrester.agents.decisions.events import EventFactory
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.executor.columns import SOURCE
from arrester.agents.failures.failed_record import produce_number, stage_of
from arrester.agents.journal.entries import Entry, Kind
from arrester.agents.journal.journal import Journal
from arrester.agents.run.resume_command import CommandOutcome
from arrester.controlplane.domain.events import (
    CommandApplied,
    CommandRefused,
    EventData,
    PolicyChanged,
    StageAnswer,
)
from arrester.controlplane.domain.state.policy_overrides import retry_refusal, stage_refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCommand:
    """A command, from an operator or the author's own code, to override the policy of a stage."""

    stage: str
    #: None: the policy of the author and the configuration.
    answer: StageAnswer | None
    command: UUID | None = None
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOverrides:
    """Apply or refuse policy overrides for one run. The caller holds the run lock."""

    pipeline: Pipeline
    journal: Journal
    event_factory: EventFactory
    #: errors.retries.limit
    retries: int

    def set(self, requested: PolicyCommand, at: datetime) -> CommandOutcome:
        """Record or refuse the override; a repeated command gets the first answer."""
        known = self.journal.ledger.answers.get(str(requested.command))
        if known is not None:
            return CommandOutcome(applied=known.applied, reason=known.reason)
        self.journal.check_owned()
        refusal = self._refusal(requested)
        if refusal is not None:
            if requested.command is not None:
                refused = CommandRefused(command=requested.command, reason=refusal)
                self._append(Kind.REFUSED, at, requested, [refused])
            return CommandOutcome(applied=False, reason=refusal)
        word = self._word(requested)
        changed = PolicyChanged(
            stage=requested.stage,
            answer=requested.answer,
            actor=requested.actor,
            reason=requested.reason,
        )
        answer = (
            []
            if requested.command is None
            else [CommandApplied(command=requested.command, detail=word)]
        )
        self._append(Kind.POLICY, at, requested, [changed, *answer])
        return CommandOutcome(applied=True, reason=word)

    def _refusal(self, requested: PolicyCommand) -> str | None:
        numbers = range(SOURCE, produce_number(self.pipeline) + 1)
        names = [stage_of(self.pipeline, number) for number in numbers]
        missing = stage_refusal(self.pipeline.name, names, requested.stage)
        return missing or retry_refusal(requested.stage, requested.answer, retries=self.retries)

    def _word(self, requested: PolicyCommand) -> str:
        if requested.answer is None:
            return f"{requested.stage} is answered as in the code, from the next micro-batch on"
        word = f"{requested.stage} is answered {requested.answer} from the next micro-batch on"
        if requested.answer == "PAUSE" and self.pipeline.task is None:
            return f"{word}; PAUSE of a task without a key is FAIL"
        return word

    def _append(
        self, kind: Kind, at: datetime, requested: PolicyCommand, told: list[EventData]
    ) -> None:
        events = tuple(
            self.event_factory.event(each, at, caused_by=requested.command) for each in told
        )
        entry = Entry(kind=kind, at=at, epoch=self.event_factory.run.epoch, events=events)
        self.journal.append(entry)
