"""The agent: the entry point for pipeline authors. One Agent is one instance and runs once."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import UUID

from arrester.agents.arguments import (
    check_flag,
    check_mapping,
    check_number,
    check_remark,
    check_text,
    nearest,
    wrong_type,
)
from arrester.agents.config import AgentConfig, SettingSource
from arrester.agents.error_policy.respond import as_answer
from arrester.agents.failures.driver_failure import driver_failure
from arrester.agents.handlers import Handler
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.lineage.emitter import close as close_lineage
from arrester.agents.run.run_lock import refuse_inside
from arrester.agents.runtime.command_log import log_answer
from arrester.agents.runtime.end.one_line import interrupted
from arrester.agents.runtime.end.script_end import ScriptEnd, script_end
from arrester.agents.runtime.end.signals import exit_on_signals
from arrester.agents.runtime.instance import Ending
from arrester.agents.runtime.redrive_result import Redriven
from arrester.agents.runtime.runtime import Runtime
from arrester.agents.runtime.status import (
    AgentStatus,
    MetricTable,
    TaskTable,
    metrics_of,
    pipelines_of,
    tasks_of,
)
from arrester.agents.runtime.thread_protocol import (
    PipelineCommand,
    PolicyCommand,
    TaskCommand,
    Thread,
    run_of,
)
from arrester.agents.runtime.uncaught_handler import UncaughtHandler
from arrester.domain.commands import agent_versions
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidValue
from arrester.domain.events import FinalResponse, ResumeHow, StageAnswer
from arrester.domain.identity.names import TaskId
from arrester.domain.json_patch import JsonPatch
from arrester.domain.python_versions import UTC
from arrester.domain.state.states import (
    InstanceStatus,
    TaskState,
    TaskStatus,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from arrester.agents.definition.builder import PipelineBuilder
    from arrester.agents.definition.pipeline import Pipeline, Trigger
    from arrester.agents.run.query_observer import QueryObserver
    from arrester.agents.run.thread import PipelineThread

_REASON_RULE = "a reason, a text that is not empty"
_METHODS = {
    ResumeHow.RETRY: "resume",
    ResumeHow.MEND: "edit",
    ResumeHow.SKIP: "skip",
    ResumeHow.AT: "resume_at",
    ResumeHow.RESTART: "restart",
    TaskAct.PAUSE: "pause",
}


class Agent:
    """Guards the pipelines of one application in this driver process.

    It works without a server: with no REDIS_URL, or with an unreachable Redis, it decides, pauses
    and resumes all the same, and keeps its events.

        with Agent(spark, application="flights", errors={...}) as agent:
            agent.pipeline("delays", source, task="origin", position="position") ... .start("/cp")
            agent.await_termination()

    Inside the block, SIGTERM and Ctrl-C end it, also if only the JVM receives them. Its end stops
    the pipelines at a micro-batch boundary within `error.shutdown.timeout.ms`. A failure of a
    pipeline that `await_termination` has not raised or returned is raised at the end of the block.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        application: str,
        errors: Mapping[str, object] | None = None,
        on_uncaught: object = None,
        version: str | None = None,
    ) -> None:
        """Check the arguments. Nothing runs and nothing is written yet.

        `version` is the version of the application, such as "1.4.2". The default is that of the
        environment (ARRESTER_VERSION), else of the installed distribution that the main module
        belongs to, if it requires this product.

        `on_uncaught` is the handler of an exception that ends a thread (KIP-671): an
        UncaughtAnswer, a function of the exception that returns one, an object with
        `handle(exception)`, or a dotted path to one of these. The default is SHUTDOWN_CLIENT.

        `errors` has keys as in Kafka Connect and Kafka Streams. It precedes the same settings as
        `spark.arrester.<key>` in Spark's configuration, and these the properties file
        `spark.arrester.config.file`.

        Raises InvalidConfiguration with every fault of the name, of all settings, of the
        environment (REDIS_URL, ARRESTER_SERVER_KEY, ARRESTER_SPOOL, ARRESTER_VERSION), of `version`
        and of `on_uncaught`; raises SparkRefused for Spark Connect or an unsupported version of
        Spark.
        """
        # It imports PySpark, which importing this package alone must not need.
        from arrester.agents.spark.agent_settings import agent_settings
        from arrester.agents.spark.jvm.versions import require_supported

        require_supported(spark)
        handler, sources, faults = UncaughtHandler(), list[SettingSource](), list[InvalidValue]()
        try:
            check_mapping("errors", errors, "a mapping of settings: {'errors.dlq.enable': True}")
            for key in errors or {}:
                check_text("errors", key, "keys that are texts")
        except InvalidValue as fault:
            errors = None
            faults.append(fault)
        try:
            handler = UncaughtHandler(on_uncaught)
        except InvalidValue as fault:
            faults.append(fault)
        try:
            sources = agent_settings(spark)
        except InvalidValue as fault:
            faults.append(fault)
        config = AgentConfig.read(
            application, errors or {}, version=version, sources=sources, other_faults=faults
        )
        self._runtime = Runtime(
            config,
            versions=_versions(spark, config.release),
            describe=driver_failure,
            spark_ui=spark.sparkContext.uiWebUrl,
            on_uncaught=handler,
        )
        self._runtime.at_end.append(partial(close_lineage, config.application))
        self._spark = spark
        if config.spark_metrics:
            self._runtime.at_start.append(self._start_metrics)
        self._observer: QueryObserver | None = None
        self._uncaught = handler.shown
        self._block = ExitStack()

    def _start_metrics(self) -> None:
        from arrester.agents.runtime.spark_metrics import SparkMetrics
        from arrester.agents.spark.jvm.metric_source import MetricSource

        metrics = SparkMetrics(
            self._runtime.config.application,
            MetricSource(self._spark),
            tasks=self.tasks,
            agent=self._runtime.metrics,
        )
        metrics.start()
        self._runtime.at_end.append(metrics.stop)

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

        `task` is the unit that pauses on its own, `position` a sortable integer that is unique
        within the task. For a Kafka source they default to the partition (with its topic, if there
        may be several) and the offset. `key` and `value` are shown with a failed record. A text is
        the column of exactly this name, `dgraph.type` too; without one, it is resolved as Spark
        does: `a.b` is a field of `a`, and backticks quote. Fields in `redact`, in addition to the
        configuration's, do not leave the driver; with `show`, only the fields in it do. `on_error`
        decides about records whose task or position raises, or whose position is NULL or not unique
        (stage `source`).
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
        self,
        pipeline: Pipeline,
        checkpoint: str,
        *,
        trigger: Trigger | None = None,
        adopt: bool = False,
    ) -> PipelineThread:
        """Start one run of `pipeline` at `checkpoint`; its `start` and `run` call this.

        Raises StartRefused if an operator shut the application down, and any exception that
        keeps the query from starting.
        """
        from arrester.agents.definition.pipeline import checked_start
        from arrester.agents.definition.used_modules import modules_of, python_functions
        from arrester.agents.run.thread import PipelineThread
        from arrester.agents.spark.executor_python import check_executors

        checkpoint = checked_start(pipeline, checkpoint, trigger)
        check_flag("adopt", adopt)
        config = self._runtime.config
        thread = self._runtime.start(
            lambda outbox, on_end: PipelineThread(
                pipeline,
                application=config.application,
                instance=self.instance,
                outbox=outbox,
                config=config,
                on_end=on_end,
                uncaught=self._uncaught,
            ),
            lambda thread: thread.start(checkpoint, trigger=trigger, adopt=adopt),
        )
        if functions := python_functions(pipeline):
            check_executors(self._spark, set().union(*map(modules_of, functions)))
        return thread

    def observe(self) -> None:
        """Report what flows through the streaming queries of the session that are not guarded.

        They are only read: their rate, duration, backlog and watermark, from the reports that Spark
        makes after each micro-batch, and their end: a query that an exception ends is a DEAD
        pipeline. The name of a query (`queryName`), in lower case and with hyphens, is the name of
        its pipeline, else its id. Reports come late, and Spark may drop some under load. A second
        call has no effect, and without a server nothing is stored. Raises StartRefused.
        """
        from arrester.agents.run.query_observer import QueryObserver

        store = self._runtime.flow_store()
        if store is None or self._observer is not None:
            return
        instance = self._runtime.instance
        self._observer = QueryObserver(
            self._spark, store=store, instance=instance.id, emit=instance.emit
        )
        self._observer.start()
        self._runtime.at_end.append(self._observer.stop)

    def remove_thread(self, pipeline: str) -> bool:
        """End a pipeline's thread at a micro-batch boundary without a replacement.

        Return True if one ran; False if none did, or if the instance is not RUNNING (KIP-663). The
        other pipelines continue, also after the last removal. Raises InvalidValue inside a
        pipeline's functions.
        """
        check_text("pipeline", pipeline, "the name of a pipeline")
        refuse_inside("remove_thread()")
        return self._runtime.remove(pipeline)

    # ── life and end ─────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Agent:
        """Bring the instance to RUNNING; raises StartRefused."""
        from arrester.agents.spark.jvm.shutdown_hook import shutdown_hook

        self._runtime.open()
        forward = self._block.enter_context(exit_on_signals())
        hook = shutdown_hook(
            self._spark,
            partial(self._end_before_the_jvm, forward),
            timeout_seconds=self._runtime.longest_end_seconds,
        )
        self._block.enter_context(hook)
        return self

    def _end_before_the_jvm(self, forward: Callable[[], None] | None) -> None:
        """End the block, and return when it has ended: then the JVM stops Spark."""
        if forward is None:
            self._runtime.end_soon(Ending.STOPPED, "the JVM of the driver shuts down")
        else:
            forward()
        self._runtime.await_over()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything. An exception of the block reaches the caller and the server.

        Without one, raises a failure that ended a pipeline and that no caller has received.
        """
        with self._block:
            if kind is None:
                self._runtime.warn_unawaited()
            self._stop(script_end(error, usual="the block ended"))
        interrupted(error, self._runtime.config.application)
        if kind is None:
            self._runtime.termination.raise_unseen()

    def await_termination(
        self, timeout_seconds: float | None = None, *, raises: bool = True
    ) -> Ending | None:
        """Wait until the work is done and return how it ended; None after the timeout.

        An exception that ended a pipeline is raised here, as by Spark's `awaitTermination`, so that
        a script does not end with success; each is raised once, and later calls return FAILED. With
        `raises=False` none is raised: the result is FAILED, and `exception` is the first failure.

        `on_uncaught` decides what else follows. By default (SHUTDOWN_CLIENT) the instance ends.
        With SHUTDOWN_THREAD the other pipelines continue, and the failure is raised after their
        end; with DEFAULT it is raised at once, and the caller may wait again.
        """
        if timeout_seconds is not None:
            check_number("timeout_seconds", timeout_seconds, "a number of seconds, or None")
        check_flag("raises", raises)
        try:
            return self._runtime.termination.wait(timeout_seconds, raises=raises)
        except KeyboardInterrupt as exc:
            interrupted(exc, self._runtime.config.application)
            raise

    def stop(self) -> None:
        """Stop all pipelines at a micro-batch boundary, end the instance, and wait for it.

        After `error.shutdown.timeout.ms` running Spark jobs are cancelled; some seconds more are
        given to the last events. Raises InvalidValue inside a pipeline's functions, which it would
        wait for.
        """
        refuse_inside("stop()")
        self._stop(ScriptEnd("stop() was called"))
        if threading.current_thread() is threading.main_thread():
            self._block.close()

    def _stop(self, end: ScriptEnd) -> None:
        # A signal may interrupt the wait. The shutdown continues.
        self._runtime.end_soon(Ending.STOPPED, end.reason, exc=end.exception)
        self._runtime.await_over()

    @property
    def instance(self) -> UUID:
        """The ID of this instance: a UUIDv7 that is never used again."""
        return self._runtime.id

    @property
    def state(self) -> InstanceStatus:
        """The instance's state: CREATED, RUNNING, PENDING_SHUTDOWN then NOT_RUNNING, or
        PENDING_ERROR then ERROR when an uncaught exception shut the application down."""
        return self._runtime.instance.status

    @property
    def is_running(self) -> bool:
        """Whether the instance is RUNNING, so that pipelines can be started in it."""
        return self.state is InstanceStatus.RUNNING

    @property
    def exception(self) -> BaseException | None:
        """The exception that ended the first failed thread, None without one."""
        return self._runtime.exception

    @property
    def stopped_by_command(self) -> bool:
        """Whether the application was shut down, by an operator or by a failure of another
        instance, or this instance by an operator. Do not restart it automatically."""
        return self._runtime.ending is Ending.SHUT_DOWN

    # ── tasks ────────────────────────────────────────────────────────────────────────────────

    def tasks(self) -> TaskTable:
        """Return the tasks that ever failed or changed state. All others are RUNNING.

        The result is a list. Notebooks and `print` show it as a table.
        """
        tasks = tasks_of(self._runtime.registry.threads)
        return TaskTable(tasks, if_empty="No task has failed or changed its state.")

    def paused_tasks(self) -> TaskTable:
        """Return the tasks that are PAUSED."""
        paused = (state for state in self.tasks() if state.status is TaskStatus.PAUSED)
        return TaskTable(paused, if_empty="No task is PAUSED.")

    def status(self) -> AgentStatus:
        """Return pipelines, rates, failures, held records and stopped tasks as of now.

        Notebooks and `print` show it on one screen.
        """
        stopped = (state for state in self.tasks() if state.status.stopped)
        return AgentStatus(
            application=self._runtime.config.application,
            instance=self.instance,
            state=self.state,
            exception=self.exception,
            pipelines=pipelines_of(self._runtime.registry.threads),
            stopped=TaskTable(stopped, if_empty="No task is PAUSED or DEAD."),
            metrics=self.metrics(),
        )

    def resume(
        self, task: TaskState | TaskId | str, *, actor: str | None = None, reason: str | None = None
    ) -> bool:
        """Resume a PAUSED task at the failed record; return True only from PAUSED (KIP-990).

        `task` may also be the key of a task that only one pipeline has. Held records are processed
        first, in order. The call waits for the current micro-batch.
        Inside a pipeline's functions (a handler, a step or a sink) it raises InvalidValue, as do
        the methods below.
        """
        return self._apply(task, ResumeHow.RETRY, actor=actor, reason=reason)

    def skip(
        self, task: TaskState | TaskId | str, *, reason: str, actor: str | None = None
    ) -> bool:
        """Resume a PAUSED task after the failed record; return True only from PAUSED.

        If dead letters are enabled (`errors.dlq.enable`), the record becomes one, with `reason` and
        `actor`; otherwise it is lost.
        """
        check_text("reason", reason, _REASON_RULE)
        return self._apply(task, ResumeHow.SKIP, actor=actor, reason=reason)

    def edit(
        self,
        task: TaskState | TaskId | str,
        patch: str,
        *,
        reason: str,
        actor: str | None = None,
    ) -> bool:
        """Resume a PAUSED task with a changed failed record; return True only from PAUSED.

        `patch` is a JSON Patch (RFC 6902), a text such as
        `[{"op": "replace", "path": "/amount", "value": 5}]`; its paths begin with a column of the
        source. The record keeps its place before the later ones. If the patch does not apply, or
        the changed record does not fit the source, or has another task or position, nothing happens
        and the result is False. Raises InvalidValue for a text that is no such patch.
        """
        check_text("reason", reason, _REASON_RULE)
        check_text("patch", patch, "a JSON Patch, a text")
        text = JsonPatch(patch).text
        return self._apply(task, ResumeHow.MEND, patch=text, actor=actor, reason=reason)

    def restart(
        self, task: TaskState | TaskId | str, *, actor: str | None = None, reason: str | None = None
    ) -> bool:
        """Restart a DEAD task at the failed record; return True only from DEAD.

        Tasks die alone with `errors.failure.scope=task`. Held records are processed first, in
        order, and the tolerance counts from 0.
        """
        return self._apply(task, ResumeHow.RESTART, actor=actor, reason=reason)

    def resume_at(
        self,
        task: TaskState | TaskId | str,
        position: int,
        *,
        reason: str,
        actor: str | None = None,
    ) -> bool:
        """Resume a PAUSED task at `position`; return True only from PAUSED.

        The position must not be before the failed record, nor beyond the one after the last held
        record; otherwise nothing happens and the result is False. Held records before it become
        dead letters, if enabled, with `reason` and `actor`; otherwise they are lost.
        """
        check_text("reason", reason, _REASON_RULE)
        if isinstance(position, bool) or not isinstance(position, int):
            raise wrong_type("position", position, "a position, an integer")
        return self._apply(task, ResumeHow.AT, target=position, actor=actor, reason=reason)

    def pause(
        self, task: TaskState | TaskId | str, *, actor: str | None = None, reason: str | None = None
    ) -> bool:
        """Pause a RUNNING task until it is resumed; return True only from RUNNING.

        It stays PAUSED in later runs and instances. While one pipeline runs, the key may be one
        that has not failed. A global task cannot be paused.
        """
        id = self._task_id(task, is_new_allowed=True)
        return self._apply(id, TaskAct.PAUSE, actor=actor, reason=reason)

    def set_policy(
        self,
        pipeline: str,
        stage: str,
        answer: Response | FinalResponse | None,
        *,
        reason: str,
        actor: str | None = None,
    ) -> bool:
        """Override the error policy of a stage of a running pipeline from the next micro-batch on.

        The override precedes `on=`, `on_error=` and the configuration, but never fatal and
        self-healing classes. Later runs at the checkpoint keep it. `stage` is `source`,
        `deserialize`, `process:<name>` or `produce`; an answer of None removes the override. Return
        False if the pipeline does not run or has no such stage, or if RETRY would be FAIL: without
        a retry budget, and at every stage but `deserialize`. Raises InvalidValue for an invalid
        answer.
        """
        check_text("stage", stage, "source, deserialize, process:<name> or produce")
        check_text("reason", reason, _REASON_RULE)
        valid_answer = None if answer is None else as_answer(answer)
        if answer is not None and valid_answer is None:
            raise InvalidValue(
                "answer", answer, "CONTINUE, RETRY, PAUSE or FAIL of agents, or None"
            )
        stage_answer: StageAnswer | None = None if valid_answer is None else valid_answer.value
        command = PolicyCommand(stage, stage_answer, actor=actor, reason=reason)
        return self._apply_in_pipeline("set_policy", pipeline, command)

    def pause_pipeline(
        self,
        pipeline: str,
        *,
        seconds: float | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Pause a running pipeline until it is resumed, or for some seconds.

        The current micro-batch is completed. Then no micro-batch and no held record begins; the
        source keeps its place, and later runs start PAUSED. A PAUSED pipeline gets this end in
        place of its own. Return False if the pipeline does not run.
        """
        if seconds is not None and not seconds > 0:
            raise InvalidValue("seconds", seconds, "more than 0, or None: until it is resumed")
        until = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
        command = PipelineCommand(pauses=True, until=until, actor=actor, reason=reason)
        return self._apply_in_pipeline("pause_pipeline", pipeline, command)

    def resume_pipeline(
        self, pipeline: str, *, actor: str | None = None, reason: str | None = None
    ) -> bool:
        """Resume a PAUSED pipeline: held records run first; return False if it is not PAUSED."""
        command = PipelineCommand(pauses=False, actor=actor, reason=reason)
        return self._apply_in_pipeline("resume_pipeline", pipeline, command)

    def redrive(
        self,
        pipeline: str,
        dead_letters: DataFrame,
        *,
        reason: str,
        actor: str | None = None,
    ) -> Redriven:
        """Process dead letters of a running pipeline once more, as they are or mended.

        `dead_letters` has the columns of dead letters in files; its `row` may have been changed.
        Each record becomes a held record of its task: it runs before new records of the task,
        through all steps, exactly once where micro-batches are. If it fails again, it is decided
        again.

        Of several dead letters with one id the newest counts, and each is taken once: a repeated
        call changes nothing. A row that lacks a column of the source, has another one, or a value
        of another type, is not taken; the result has their number and the first ones.

        A run that would end meanwhile waits for it.

        Raises InvalidValue if the pipeline does not run here, for a frame without these columns or
        with dead letters of another checkpoint, and above `held.records.limit`.
        """
        check_text("pipeline", pipeline, "the name of a pipeline")
        check_text("reason", reason, _REASON_RULE)
        _check_remarks(actor, reason)
        threads = [
            thread
            for thread in self._runtime.registry.running()
            if thread.pipeline_name == pipeline
        ]
        if len(threads) != 1:
            names = [each.pipeline_name for each in self._runtime.registry.running()]
            allowed = "a pipeline that is running in this instance, whose run has not ended"
            raise InvalidValue("pipeline", pipeline, allowed + nearest(pipeline, names))
        return threads[0].redrive(dead_letters, actor=actor, reason=reason)

    def _apply(
        self,
        task: TaskState | TaskId | str,
        how: ResumeHow | TaskAct,
        *,
        target: int | None = None,
        patch: str | None = None,
        actor: str | None,
        reason: str | None,
    ) -> bool:
        _check_remarks(actor, reason)
        id = self._task_id(task)
        command = TaskCommand(
            id.key, how=how, target=target, patch=patch, actor=actor, reason=reason
        )
        threads = [
            thread
            for thread in self._runtime.registry.running()
            if (thread.pipeline_name, thread.checkpoint_id) == (id.pipeline, id.checkpoint)
        ]
        return _apply_in_threads(_METHODS[how], id.pipeline, command, threads)

    def _apply_in_pipeline(
        self, method: str, pipeline: str, command: PolicyCommand | PipelineCommand
    ) -> bool:
        """Apply a command in all runs of a pipeline."""
        _check_remarks(command.actor, command.reason)
        check_text("pipeline", pipeline, "the name of a pipeline")
        threads = [
            thread
            for thread in self._runtime.registry.running()
            if thread.pipeline_name == pipeline
        ]
        return _apply_in_threads(method, pipeline, command, threads)

    def _task_id(self, task: TaskState | TaskId | str, *, is_new_allowed: bool = False) -> TaskId:
        """Return the identity of a task that may be given by its key."""
        if isinstance(task, TaskState):
            return task.id
        if isinstance(task, TaskId):
            return task
        allowed = "a task of agent.tasks(), or the key of one that only one pipeline has"
        check_text("task", task, allowed)
        ids = [state.id for state in self.tasks() if state.id.key == task]
        if len(ids) == 1:
            return ids[0]
        running = self._runtime.registry.running()
        if is_new_allowed and not ids and len(running) == 1:
            run = run_of(running[0])
            return TaskId(
                application=self._runtime.config.application,
                pipeline=run.pipeline,
                checkpoint=run.checkpoint,
                key=task,
            )
        keys = [state.id.key for state in self.tasks() if state.id.key is not None]
        hint = f"; {len(ids)} pipelines have it" if ids else nearest(task, keys)
        raise InvalidValue("task", task, allowed + hint)

    def metrics(self) -> MetricTable:
        """Return counters: of all tasks by their KIP-298 names, then of the agent itself.

        The result is a dict. `last-failure-timestamp` is in milliseconds since 1970, 0 without a
        failure.
        """
        return metrics_of(self.tasks(), self._runtime.metrics())


def _check_remarks(actor: object, reason: object) -> None:
    """Raise InvalidValue for an actor or a reason that is no text."""
    check_remark("actor", actor)
    check_remark("reason", reason)


def _apply_in_threads(
    method: str,
    pipeline: str,
    command: TaskCommand | PolicyCommand | PipelineCommand,
    threads: Sequence[Thread],
) -> bool:
    """Apply the command in each thread; return whether there are any and all applied it.

    Log the answers.
    """
    if threads:
        try:
            answers = [thread.apply(command) for thread in threads]
        except Superseded as exc:
            answers = [CommandAnswer(applied=False, reason=str(exc))]
    else:
        answers = [CommandAnswer(applied=False, reason="it has no RUNNING run in this instance")]
    task = command.key if isinstance(command, TaskCommand) else None
    for answer in answers:
        log_answer(method, command, answer, pipeline=pipeline, task=task)
    return all(answer.applied for answer in answers)


def _versions(spark: SparkSession, release: str | None) -> dict[str, str]:
    versions = {
        **({} if release is None else {"release": release}),
        "python": platform.python_version(),
        "spark": spark.version,
        agent_versions.REPORTED_AS: str(agent_versions.VERSION),
    }
    try:
        return {"agent": version("arrester"), **versions}
    except PackageNotFoundError:  # run from its sources
        return versions
