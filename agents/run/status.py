"""What can be seen of a run from any Python thread, without its lock."""

from __future__ import annotations

from uuid import UUID

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.run.engine import Engine
from arrester.agents.run.resume_command import CommandOutcome
from arrester.controlplane.domain.state.states import TaskState, TaskStatus


class RunStatus:
    """A run's names, numbers and tasks; most of them are known once it has started."""

    _engine: Engine

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        #: Its agent knows how it ended, and has done what follows.
        self._answered = False

    @property
    def is_answered(self) -> bool:
        """Whether it has ended, and what follows from that has been done."""
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
        """The number of this run at its checkpoint."""
        return self._engine.run.epoch

    def tasks(self) -> list[TaskState]:
        """Return the tasks that ever failed or changed state here; all others are RUNNING."""
        return self._engine.tasks()

    def paused_tasks(self) -> list[TaskState]:
        """Return the PAUSED tasks."""
        return [each for each in self.tasks() if each.status is TaskStatus.PAUSED]

    def standing(self) -> int | None:
        """Return what its tasks add to the heartbeat's hash; None while something is untold."""
        return self._engine.standing()

    def is_applied(self, command: UUID) -> CommandOutcome | None:
        """Return what was answered to a command, by this run or one before it; None: never seen.

        One look into a dictionary, without the lock: a micro-batch may hold that for long.
        """
        return self._engine.resumer.answered(command)
