"""The state of a run, readable from any Python thread without its lock."""

from __future__ import annotations

from uuid import UUID

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.run.engine import Engine
from arrester.agents.run.resume_command import CommandOutcome
from arrester.controlplane.domain.state.states import TaskState, TaskStatus


class RunStatus:
    """A run's names, numbers and tasks; most are known once it has started."""

    _engine: Engine

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        #: Whether the agent knows how it ended, and has reacted.
        self._answered = False

    @property
    def is_answered(self) -> bool:
        """Whether it has ended and the agent has reacted."""
        return self._answered

    @property
    def pipeline_name(self) -> str:
        """The pipeline's name."""
        return self.pipeline.name

    @property
    def checkpoint_id(self) -> str:
        """The id in the checkpoint's metadata; known once the run has started."""
        return self._engine.journal.ledger.checkpoint

    @property
    def is_global(self) -> bool:
        """Whether the pipeline has one task only, the global one."""
        return self.pipeline.task is None

    @property
    def epoch(self) -> int:
        """The number of this run on its checkpoint."""
        return self._engine.run.epoch

    def tasks(self) -> list[TaskState]:
        """Return the tasks that ever failed or changed state here; all others are RUNNING."""
        return self._engine.tasks()

    def paused_tasks(self) -> list[TaskState]:
        """Return the PAUSED tasks."""
        return [each for each in self.tasks() if each.status is TaskStatus.PAUSED]

    def standing(self) -> int | None:
        """Return what its tasks add to the heartbeat's hash; None while events are unpublished."""
        return self._engine.standing()

    def is_applied(self, command: UUID) -> CommandOutcome | None:
        """Return the answer to a command, from this run or an earlier one; None if it is unknown.

        Reads a dictionary without the lock, which a micro-batch may hold for long.
        """
        return self._engine.resumer.answered(command)
