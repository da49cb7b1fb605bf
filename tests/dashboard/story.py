"""Test data of pages: events of agents, sent through Redis and folded."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from msgspec.structs import replace

from arrester.controlplane import actions, queries
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.redis import redis_client
from arrester.domain.commands import agent_versions
from arrester.domain.events import (
    Body,
    CommandApplied,
    CommandDelivered,
    Event,
    EventData,
    Failure,
    FailuresCounted,
    FinalResponse,
    FlowMeasured,
    InstanceStarted,
    InstanceStopped,
    PipelineDescribed,
    PipelinePaused,
    PipelineResumed,
    PolicyChanged,
    RecordFailed,
    RecordsDeadLettered,
    RecordsHeld,
    RecordTest,
    ResumeHow,
    Run,
    StageDescribed,
    TaskDied,
    TaskPaused,
    TaskResumed,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.identity import redis_keys
from arrester.domain.identity.dead_letter_ids import dead_letter_ids
from arrester.domain.identity.fingerprint import fingerprint
from arrester.domain.identity.names import TaskId
from arrester.domain.wire import codec, dead_letter_columns
from tests.dashboard.accounts import make_user

STACK = """Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/_arrester_worker/guard.py", line 88, in guarded
    result = function(record)
  File "/srv/flights/checks.py", line 41, in validate
    ensure_plausible(flight)
  File "/srv/flights/checks.py", line 23, in ensure_plausible
    raise ImplausibleDelay(f"departed {delay} minutes late: a typo, or a very long day")
checks.ImplausibleDelay: departed 1301 minutes late: a typo, or a very long day
"""
RECORD = {
    "position": 151_974,
    "origin": "JFK",
    "flight": "HA51",
    "value": "2013,1,9,641,900,1301,1242,1530,1272,HA,51,N384HA,JFK,HNL,640,4983,9,0",
    "dep_delay": 1301,
    "arr_delay": 1272,
    "tailnum": "N384HA",
    "weather": {"wind": 9.2, "visibility": 10.0, "gust": None},
}


def failure(stage: str, exception_class: str, message: str, frame: str | None = None) -> Failure:
    """Return a failure with its fingerprint."""
    mark = fingerprint(
        stage=stage, exception_class=exception_class, condition=None, frame=frame, message=message
    )
    return Failure(
        stage=stage,
        exception_class=exception_class,
        message=message,
        fingerprint=mark,
        frame=frame,
    )


def malformed(**inner: str) -> Failure:
    """Return a failure of a parser, with its cause or as an earlier agent sends it."""
    values: dict[str, Any] = {
        "stage": "deserialize",
        "exception_class": "org.apache.spark.SparkException",
        "condition": "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION",
        "frame": None,
        "message": f"[MALFORMED_RECORD_IN_PARSING] {inner}",
        **inner,
    }
    return Failure(**values, fingerprint=fingerprint(**values))


NA = failure(
    "deserialize",
    "org.apache.spark.SparkNumberFormatException",
    '[CAST_INVALID_INPUT] The value \'NA\' of the type "STRING" cannot be cast to "INT"',
)
MODULE = failure("produce", "ModuleNotFoundError", "No module named 'pyarrow'")
TYPO = failure(
    "process:validate",
    "checks.ImplausibleDelay",
    "departed 1301 minutes late: a typo, or a very long day",
    "checks.py:23 in ensure_plausible",
)

#: An instance of now: it knows all commands.
VERSIONS = {"spark": "4.3.0", agent_versions.REPORTED_AS: str(agent_versions.VERSION)}
POLICY = PipelineDescribed(
    stages=(
        StageDescribed(name="source", kind="Source", answer="FAIL", origin="default"),
        StageDescribed(
            name="deserialize",
            step="flight",
            kind="Deserialize",
            answer="CONTINUE",
            handler="arrester.agents.handlers.LogAndContinue",
            origin="configuration",
        ),
        StageDescribed(
            name="process:validate",
            step="validate",
            kind="Process",
            handler="checks.Careful",
            origin="on_error",
            on={"checks.ImplausibleDelay": "PAUSE", "builtins.TimeoutError": "RETRY"},
        ),
        StageDescribed(name="produce", kind="Sink", answer="FAIL", origin="default"),
    ),
    sink="parquet files",
    atomic=True,
    tolerance_limit=1_000,
    rate_limit=100,
    rate_duration="hour",
    retries_limit=3,
    dead_letter_format="parquet",
    dead_letter_place="/data/dlq/flights",
    uncaught="SHUTDOWN_CLIENT",
)
#: By what becomes of skipped records: what the agent reports of its pipeline.
POLICIES = {
    "STORED": POLICY,
    "LOST": replace(POLICY, dead_letter_format=None, dead_letter_place=None),
    "UNKNOWN": None,
}


@dataclass(slots=True)
class Story:
    """An application with one instance and one pipeline; methods send its events."""

    application: str = "flights"
    pipeline: str = "delays"
    checkpoint: str = "7d0f6a4e-30a5-4c1e-9a2b-61b0f4ad0c11"
    instance: UUID = field(default_factory=uuid4)
    epoch: int = 1
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    spool: UUID = field(default_factory=uuid4)

    def task(self, key: str | None) -> TaskId:
        """Return the id of a task of the pipeline."""
        return TaskId(
            application=self.application,
            pipeline=self.pipeline,
            checkpoint=self.checkpoint,
            key=key,
        )

    def report(
        self,
        *data: EventData,
        body: Body | None = None,
        ago: timedelta = timedelta(0),
        caused_by: UUID | None = None,
    ) -> None:
        """Send events as one batch, and fold them."""
        run = Run(pipeline=self.pipeline, checkpoint=self.checkpoint, epoch=self.epoch)
        events = [
            Event(
                occurred_at=datetime.now(UTC) - ago,
                data=each,
                instance=self.instance,
                run=run,
                caused_by=caused_by,
                body=body if isinstance(each, RecordFailed | ThreadDied) else None,
            )
            for each in data
        ]
        self.send(codec.encode_batch(events))

    def send(self, packed: bytes) -> None:
        """Send bytes as a batch, and fold them."""
        fields = {"batch": str(uuid4()), "spool": str(self.spool), "events": packed}
        redis_client.client().xadd(redis_keys.events(self.application), fields)  # type: ignore[arg-type]  # redis-py's dict is invariant
        fold_stream.fold_stream(self.application)

    def starts(
        self,
        *,
        host: str = "spark-driver-0",
        pid: int = 4242,
        policy: PipelineDescribed | None = POLICY,
        ago: timedelta = timedelta(0),
    ) -> None:
        """Start the instance and its pipeline; without a policy as an old agent."""
        started = InstanceStarted(
            host=host, pid=pid, versions=VERSIONS, spark_ui=f"http://{host}:4040"
        )
        self.report(started, ThreadStarted(), *([] if policy is None else [policy]), ago=ago)
        self.beats()

    def beats(self) -> None:
        """Send a heartbeat."""
        key = redis_keys.heartbeat(self.application, self.instance)
        redis_client.client().set(key, b"{}", ex=redis_keys.LOST_AFTER_SECONDS)

    def loses_heartbeat(self) -> None:
        """End the heartbeat, and let the server detect it."""
        redis_client.client().delete(redis_keys.heartbeat(self.application, self.instance))
        now = datetime.now(UTC)
        for seconds in range(0, 60, 10):
            actions.watch(now=now + timedelta(seconds=seconds))

    def flows(self, *, ago: int, **values: Any) -> None:
        """Report what flowed in the minute that began some minutes ago."""
        minute = (datetime.now(UTC) - timedelta(minutes=ago)).replace(second=0, microsecond=0)
        self.report(FlowMeasured(minute=minute, **values))

    def skips(self, key: str | None, count: int, *, ago: timedelta = timedelta(0)) -> None:
        """Skip records of a task that cannot be parsed, as dead letters."""
        example = RecordFailed(
            task=key, position=900_000, failure=NA, response=FinalResponse.CONTINUE, key="UA1545"
        )
        body = Body(record=RECORD | {"value": "2013,1,1,NA,630,NA"}, redacted=("passenger.name",))
        more = FailuresCounted(
            task=key,
            failure=NA,
            response=FinalResponse.CONTINUE,
            count=count - 1,
            first_position=900_001,
            last_position=900_000 + count - 1,
        )
        positions = range(900_000, 900_000 + count)
        names = (self.application, self.pipeline, self.checkpoint, key)
        written = RecordsDeadLettered(
            task=key,
            count=count,
            place="/data/dlq/flights",
            format="parquet",
            first_position=900_000,
            last_position=positions[-1],
            ids=tuple(each.hex() for each in dead_letter_ids(*names, positions[:20])),
            records=dead_letter_columns.pack(
                fingerprints=[NA.fingerprint],
                causes=[1] * count,
                sizes=[100] * count,
                positions=positions,
            )
            if count <= dead_letter_columns.MAX_RECORDS
            else None,
        )
        events = (example, more, written) if count > 1 else (example, written)
        self.report(*events, body=body, ago=ago)

    def pauses(
        self,
        key: str | None,
        *,
        cause: Failure = TYPO,
        record: dict[str, object] | None = None,
        stack: str = STACK,
        held: int = 1,
        ago: timedelta = timedelta(0),
        cut_from: int | None = None,
        sealed: bytes | None = None,
    ) -> TaskId:
        """Pause a task at a failed record."""
        position = 151_974
        failed = RecordFailed(
            task=key, position=position, failure=cause, response=FinalResponse.PAUSE, key="HA51"
        )
        body = Body(
            record=RECORD if record is None else record,
            redacted=("passenger.name", "$.payment.token"),
            sealed=sealed,
            cut_from=cut_from,
            stack=stack,
        )
        paused = TaskPaused(task=key, position=position, failure=cause)
        held_now = RecordsHeld(task=key, held=held, first_position=position)
        self.report(failed, paused, held_now, body=body, ago=ago)
        return self.task(key)

    def dies_alone(self, key: str, *, cause: Failure = TYPO) -> TaskId:
        """End a task alone at a failed record."""
        failed = RecordFailed(task=key, position=7, failure=cause, response=FinalResponse.FAIL)
        died = TaskDied(task=key, position=7, failure=cause, alone=True)
        self.report(failed, died, RecordsHeld(task=key, held=1))
        return self.task(key)

    def command(self, task: TaskId) -> UUID:
        """Issue a command to resume a task; return its id."""
        return actions.resume_task(task.digest, actor="ana").id

    def fetches(self, command: UUID) -> None:
        """Report that the instance has fetched a command."""
        self.report(CommandDelivered(command=command))

    def resumes(
        self, key: str, command: UUID, *, how: ResumeHow = ResumeHow.RETRY, held: int = 0
    ) -> None:
        """Apply a command: the task runs, and still holds some records."""
        resumed = TaskResumed(task=key, how=how, actor="ana")
        self.report(
            resumed,
            RecordsHeld(task=key, held=held),
            CommandApplied(command=command),
            caused_by=command,
        )

    def tests(self, command: UUID, *, rows: int = 0, failure: Failure | None = None) -> None:
        """Report the result of a test of a record."""
        test = RecordTest(rows=rows, failure=failure)
        detail = f"the record passes the steps: {rows} rows for the sink"
        if failure is not None:
            cause = f"{failure.exception_class}: {failure.message}"
            detail = f"the record fails at {failure.stage}: {cause}"
        self.report(CommandApplied(command=command, detail=detail, test=test), caused_by=command)

    def pauses_by_hand(self, key: str, command: UUID) -> None:
        """Apply a command that pauses a task."""
        paused = TaskPaused(task=key, position=None, actor="ana")
        self.report(paused, CommandApplied(command=command), caused_by=command)

    def pauses_pipeline(self, command: UUID) -> None:
        """Apply a command that pauses the pipeline."""
        requested = queries.command(command)
        paused = PipelinePaused(
            since=datetime.now(UTC),
            until=requested.paused_until,
            actor=requested.actor,
            reason=requested.reason,
        )
        self.report(paused, CommandApplied(command=command), caused_by=command)

    def resumes_pipeline(self, command: UUID) -> None:
        """Apply a command that resumes the pipeline."""
        resumed = PipelineResumed(actor="ana")
        self.report(resumed, CommandApplied(command=command), caused_by=command)

    def applies_policy(self, command: UUID) -> None:
        """Apply a command that sets a policy."""
        requested = queries.command(command)
        changed = PolicyChanged(
            stage=requested.stage or "",
            answer=requested.answer,
            actor=requested.actor,
            reason=requested.reason,
        )
        self.report(changed, CommandApplied(command=command), caused_by=command)

    def fails(self, cause: Failure, *, stack: str = STACK, ago: timedelta = timedelta(0)) -> None:
        """End the run of the pipeline by a failure although no record failed."""
        died = ThreadDied(reason=cause.message, failure=cause, recordless=True)
        stopped = InstanceStopped(reason=cause.message, failure=cause)
        self.report(died, stopped, body=Body(stack=stack), ago=ago)

    def stops(self, *, reason: str = "shut down by command", command: UUID | None = None) -> None:
        """End the run of the pipeline, then the instance, by command."""
        applied = [CommandApplied(command=command)] if command else []
        self.report(ThreadDied(reason=reason), *applied, InstanceStopped(reason=reason))


def started_with_accounts() -> Story:
    """Return an application whose pipeline runs, with a user of each role."""
    for name, role in (("ana", "operator"), ("ben", "viewer"), ("ada", "admin")):
        make_user(name, role)
    story = Story()
    story.starts()
    return story
