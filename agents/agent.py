"""The agent: what a pipeline's author holds in hand. One Agent is one instance, and runs once."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import UUID

from arrester.agents.config import AgentConfig
from arrester.agents.handlers import Handler
from arrester.agents.run.run_lock import refuse_inside
from arrester.agents.runtime.instance import Ending
from arrester.agents.runtime.runtime import Runtime
from arrester.agents.runtime.signals import ending_the_block
from arrester.agents.runtime.task_control import commanded, counts, wished
from arrester.agents.runtime.uncaught import checked_uncaught, uncaught_shown
from arrester.controlplane.domain.error_policy.policy import Answer
from arrester.controlplane.domain.events import Response, ResumeHow
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.states import InstanceStatus, TaskState, TaskStatus

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from arrester.agents.definition.builder import PipelineBuilder
    from arrester.agents.definition.pipeline import Pipeline, Trigger
    from arrester.agents.run.thread import PipelineThread


class Agent:
    """Guards the pipelines of one application in this driver process.

    It is useful alone: with no REDIS_URL, or with a Redis that cannot be reached, it decides,
    pauses and resumes all the same, and keeps what it has to tell.

        with Agent(spark, application="flights", errors={...}) as agent:
            agent.pipeline("delays", source, task="origin", position="position") ... .start("/cp")
            agent.await_termination()

    Inside the block SIGTERM and Ctrl-C end it, and its end stops the pipelines at a micro-batch
    boundary within `error.shutdown.timeout.ms`.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        application: str,
        errors: Mapping[str, object] | None = None,
        on_uncaught: object = None,
    ) -> None:
        """Check everything; nothing runs and nothing is written yet.

        `on_uncaught` says what follows when a thread dies of an exception (KIP-671): an
        UncaughtAnswer, a function of the exception that returns one, an object with
        `handle(exception)`, or a dotted path to one of these. The default is SHUTDOWN_CLIENT.

        Raises InvalidConfiguration with every fault of the name, of `errors` (keys as in Kafka
        Connect and Kafka Streams), of the environment (REDIS_URL, ARRESTER_SPOOL) and of
        `on_uncaught`; and ConnectRefused for a Spark Connect session.
        """
        # With PySpark, which importing this package alone must not need.
        from arrester.agents.spark.try_eval import require_classic

        require_classic(spark)
        handler, faults = checked_uncaught(on_uncaught)
        config = AgentConfig.read(application, errors or {}, others=faults)
        self._runtime = Runtime(config, versions=_versions(spark), on_uncaught=handler)
        self._uncaught = uncaught_shown(on_uncaught)
        self._block = ExitStack()

    # ── pipelines ────────────────────────────────────────────────────────────────────────────

    def pipeline(
        self,
        name: str,
        source: DataFrame,
        *,
        task: str | Column | None = None,
        position: str | Column | None = None,
        key: str | Column | None = None,
        value: str | Column | None = None,
        on_error: Handler | None = None,
        redact: Sequence[str] = (),
        show: Sequence[str] | None = None,
    ) -> PipelineBuilder:
        """Begin a guarded pipeline over `source`, a stream or a static DataFrame.

        `task` gives the unit that pauses on its own, `position` a sortable integer that is unique
        within the task; for a Kafka source they default to the partition, with its topic where
        there may be several, and the offset. Fields that `redact` names, besides the
        configuration's, do not leave the driver; where `show` is given, only those that it names
        do. `on_error` answers for records whose task or position raises, or whose position is
        NULL or not unique (stage `source`).
        """
        from arrester.agents.definition.builder import define

        return define(
            name,
            source,
            task=task,
            position=position,
            key=key,
            value=value,
            on_error=on_error,
            redact=redact,
            show=show,
            runner=self,
        )

    def start_pipeline(
        self, pipeline: Pipeline, checkpoint: str, *, trigger: Trigger | None = None
    ) -> PipelineThread:
        """Start one run of `pipeline` at `checkpoint`; what `pipeline.start(checkpoint)` calls.

        Raises ApplicationLatched when somebody shut the application down, and whatever keeps the
        query from starting.
        """
        from arrester.agents.run.thread import PipelineThread

        config = self._runtime.config
        return self._runtime.start(
            lambda outbox, on_death: PipelineThread(
                pipeline,
                application=config.application,
                instance=self.instance,
                outbox=outbox,
                config=config,
                on_death=on_death,
                uncaught=self._uncaught,
            ),
            lambda thread: thread.start(checkpoint, trigger=trigger),
        )

    def run_pipeline(self, pipeline: Pipeline, checkpoint: str) -> PipelineThread:
        """Start one run of `pipeline` over a static source; what `pipeline.run(checkpoint)` calls.

        Raises as `start_pipeline`.
        """
        return self.start_pipeline(pipeline, checkpoint)

    def remove_thread(self, pipeline: str) -> bool:
        """End a pipeline's thread at a micro-batch boundary, and let none take its place.

        True when one ran; False for none, or when the instance is not RUNNING (KIP-663). The others
        go on, also when it was the last. Raises InvalidValue inside a pipeline's functions.
        """
        refuse_inside("remove_thread()")
        return self._runtime.remove(pipeline)

    # ── life and end ─────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Agent:
        """Bring the instance to RUNNING; raises ApplicationLatched."""
        self._runtime.open()
        self._block.enter_context(ending_the_block())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything; an exception of the block goes on to the caller."""
        with self._block:
            self._stop("the block ended" if kind is None else f"the block ended: {kind.__name__}")

    def await_termination(self, timeout_seconds: float | None = None) -> Ending | None:
        """Wait until the work is over and return how it ended; None when the time is over first.

        What follows a failure, `on_uncaught` says. By default (SHUTDOWN_CLIENT) it has ended the
        instance and is not raised from here: the answer is FAILED, and `exception` is what was
        raised. A script that shall fail with it says `if agent.exception: raise agent.exception`,
        or answers DEFAULT: then it is raised from here, once for each thread that died of one, and
        the other threads go on: whoever catches it may wait again.
        """
        return self._runtime.await_ending(timeout_seconds)

    def stop(self) -> None:
        """Stop all pipelines at a micro-batch boundary and end the instance; wait for it.

        Bounded by `error.shutdown.timeout.ms`, after which running Spark jobs are cancelled, and
        some seconds for the last events. Raises InvalidValue inside a pipeline's functions: it
        would wait for them.
        """
        refuse_inside("stop()")
        self._stop("stop() was called")

    def _stop(self, reason: str) -> None:
        # The wait may be interrupted by a signal; the end goes on.
        self._runtime.end_soon(Ending.STOPPED, reason)
        self._runtime.await_over()

    @property
    def instance(self) -> UUID:
        """The id of this instance: a UUIDv7, never used again."""
        return self._runtime.id

    @property
    def state(self) -> InstanceStatus:
        """The instance's state: CREATED, RUNNING, PENDING_SHUTDOWN then NOT_RUNNING, or
        PENDING_ERROR then ERROR when an uncaught exception shut the application down."""
        return self._runtime.instance.status

    @property
    def is_running(self) -> bool:
        """Whether the instance is RUNNING: then pipelines can be started in it."""
        return self.state is InstanceStatus.RUNNING

    @property
    def exception(self) -> BaseException | None:
        """What the first thread to fail died of, as it was raised; None while none has."""
        return self._runtime.exception

    @property
    def stopped_by_command(self) -> bool:
        """Whether the application was shut down, by an operator or by a failure of another of its
        instances: do not start it again by yourself."""
        return self._runtime.ending is Ending.SHUT_DOWN

    # ── tasks ────────────────────────────────────────────────────────────────────────────────

    def tasks(self) -> list[TaskState]:
        """Return the tasks that ever failed or changed state; every other one is RUNNING."""
        states = [state for thread in self._runtime.threads for state in thread.tasks()]
        # A later run of a pipeline knows its tasks better than an earlier one.
        return list({state.id: state for state in states}.values())

    def paused_tasks(self) -> list[TaskState]:
        """Return the tasks that are PAUSED."""
        return [state for state in self.tasks() if state.status is TaskStatus.PAUSED]

    def resume(
        self, task: TaskState | TaskId, *, actor: str | None = None, reason: str | None = None
    ) -> bool:
        """Let a PAUSED task go on at the record that failed; True only from PAUSED (KIP-990).

        Held records run first, in order. Waits for the micro-batch that is at work: called inside
        one, from a handler, a step or a sink, it raises InvalidValue, as all wishes below do.
        """
        return self._wished(task, ResumeHow.RETRY, actor=actor, reason=reason)

    def skip(self, task: TaskState | TaskId, *, reason: str, actor: str | None = None) -> bool:
        """Let a PAUSED task go on past the record that failed; True only from PAUSED.

        The record becomes a dead letter, where those are on, with `reason` and `actor` beside it.
        """
        return self._wished(task, ResumeHow.SKIP, actor=actor, reason=reason)

    def restart(
        self, task: TaskState | TaskId, *, actor: str | None = None, reason: str | None = None
    ) -> bool:
        """Let a task that died alone go on at the record that it died of; True only from DEAD.

        Tasks die alone with `errors.failure.scope=task`. What it holds runs first, in order, and
        its tolerance counts from 0.
        """
        return self._wished(task, ResumeHow.RESTART, actor=actor, reason=reason)

    def resume_at(
        self,
        task: TaskState | TaskId,
        position: int,
        *,
        reason: str,
        actor: str | None = None,
    ) -> bool:
        """Let a PAUSED task go on at `position`; True only from PAUSED.

        The position is not before the record that failed, and not beyond the one after the last
        held record: else nothing happens, and the answer is False. What it holds before that
        becomes dead letters, where those are on, with `reason` and `actor` beside them.
        """
        return self._wished(task, ResumeHow.AT, target=position, actor=actor, reason=reason)

    def pause(
        self, task: TaskState | TaskId, *, actor: str | None = None, reason: str | None = None
    ) -> bool:
        """Hold a RUNNING task until somebody resumes it; True only from RUNNING.

        It stays paused in later runs and instances. A global task cannot be paused.
        """
        return self._wished(task, None, actor=actor, reason=reason)

    def set_policy(
        self,
        pipeline: str,
        stage: str,
        answer: Answer | Response | None,
        *,
        reason: str,
        actor: str | None = None,
    ) -> bool:
        """Answer all failures of a stage of a running pipeline so, from the next micro-batch on.

        It goes before what `on=`, `on_error=` and the configuration say, never before fatal and
        self-healing classes; later runs at the checkpoint keep it. `stage` is `source`,
        `deserialize`, `process:<name>` or `produce`; None as answer takes it back. False where the
        pipeline does not run, has no such stage, or RETRY would be FAIL: it needs a budget, and
        stage `deserialize`. Raises InvalidValue for what is no answer.
        """
        threads = self._runtime.running()
        return commanded(threads, pipeline, stage, answer, actor=actor, reason=reason)

    def _wished(
        self,
        task: TaskState | TaskId,
        how: ResumeHow | None,
        *,
        target: int | None = None,
        actor: str | None,
        reason: str | None,
    ) -> bool:
        return wished(self._runtime.running(), task, how, target=target, actor=actor, reason=reason)

    def metrics(self) -> dict[str, int]:
        """Return counts: of all tasks under their KIP-298 names, then of the agent itself.

        `last-failure-timestamp` is in milliseconds since 1970, 0 while there was none.
        """
        tasks = self.tasks()
        paused = sum(state.status is TaskStatus.PAUSED for state in tasks)
        return counts(tasks) | {"tasks-paused": paused} | self._runtime.metrics()


def _versions(spark: SparkSession) -> dict[str, str]:
    known = {"python": platform.python_version(), "spark": spark.version}
    try:
        return {"agent": version("arrester"), **known}
    except PackageNotFoundError:  # run from its sources
        return known
