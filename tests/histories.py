"""Sample events: a few by hand, and strategies that generate all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.commands import agent_versions
from arrester.domain.events import (
    ApplicationLatched,
    ApplicationOpened,
    ApplicationShutdownRequested,
    Body,
    BodyErased,
    CommandApplied,
    CommandCancelled,
    CommandDelivered,
    CommandExpired,
    CommandIssued,
    CommandKind,
    CommandRefused,
    DeadLetterColumns,
    DeadLettersDiscarded,
    DeadLettersFailed,
    ErrorGroupAssigned,
    ErrorGroupMuted,
    ErrorGroupReopened,
    ErrorGroupResolved,
    ErrorGroupUnmuted,
    Event,
    EventData,
    Failure,
    FailuresCounted,
    FinalResponse,
    FlowMeasured,
    InstanceFound,
    InstanceLost,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
    NoteAdded,
    OutageFound,
    PipelineDescribed,
    PipelinePaused,
    PipelineResumed,
    PolicyChanged,
    QuarantineDismissed,
    QuarantineRequeued,
    RecordFailed,
    RecordsDeadLettered,
    RecordsHeld,
    RecordsRedriven,
    RecordTest,
    Redrive,
    RedriveSlice,
    ResumeHow,
    RetriesCounted,
    Rollout,
    Run,
    StageCommanded,
    StageDescribed,
    StateReported,
    StoredEvent,
    TaskDied,
    TaskDismissed,
    TaskPaused,
    TaskReported,
    TaskRestarted,
    TaskResumed,
    ThreadDied,
    ThreadReplaced,
    ThreadStarted,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.wire import dead_letter_columns
from arrester.domain.wire.failure_columns import (
    MIN_EVENTS,
    FailedRecords,
    Stored,
    StoredFailures,
    last,
    to_columns,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
APPLICATION = "flights"
INSTANCE = UUID("0193476e-0000-7000-8000-000000000001")
OTHER_INSTANCE = UUID("0193476e-0000-7000-8000-000000000002")
RUN = Run(pipeline="delays", checkpoint="cp-1", epoch=1)
JFK = TaskId(application=APPLICATION, pipeline="delays", checkpoint="cp-1", key="JFK")
FAILURE = Failure(
    stage="process:validate",
    exception_class="ValueError",
    message="delay of 1301 minutes",
    fingerprint="1-00112233445566aa",
    frame="flights.py:12 in validate",
)


def event(data: EventData, *, minute: int = 0, run: Run | None = RUN, **envelope: object) -> Event:
    """Return `data` as an event of the tests' agent."""
    values = {"instance": INSTANCE, "body": None} | envelope
    return Event(occurred_at=NOON + timedelta(minutes=minute), data=data, run=run, **values)  # type: ignore[arg-type]  # envelope fields by name


def started() -> list[Event]:
    """Return the first events of an agent."""
    versions = {"python": "3.11", agent_versions.REPORTED_AS: str(agent_versions.VERSION)}
    return [
        event(InstanceStarted(host="driver", pid=7, versions=versions), run=None),
        event(ThreadStarted()),
    ]


def failed(
    position: int, *, key: str | None = "JFK", response: FinalResponse = FinalResponse.CONTINUE
) -> Event:
    """Return a failed record with its body."""
    data = RecordFailed(task=key, position=position, failure=FAILURE, response=response)
    body = Body(record={"flight": "B6 1", "dep_delay": 1301}, stack="Traceback …")
    return event(data, minute=position % 60, body=body)


def paused(position: int = 7, *, key: str | None = "JFK") -> list[Event]:
    """Return a record that pauses its task."""
    return [
        failed(position, key=key, response=FinalResponse.PAUSE),
        event(TaskPaused(task=key, position=position, failure=FAILURE)),
        event(RecordsHeld(task=key, held=3, first_position=position)),
    ]


def stored(events: list[Event], *, after: int = 0) -> list[StoredEvent]:
    """Return `events` with their positions in the log."""
    return [
        StoredEvent(
            application=APPLICATION,
            sequence=sequence,
            received_at=NOON + timedelta(hours=1, seconds=sequence),
            batch=UUID(int=sequence),
            event=each,
        )
        for sequence, each in enumerate(events, after + 1)
    ]


def stored_elements(events: list[Event], *, after: int = 0) -> list[Stored]:
    """Return `events` as stored elements, as columns if possible."""
    found: list[Stored] = []
    for each in to_columns(replace(event, body=None) for event in events):
        sequence = last(found[-1]) + 1 if found else after + 1
        if isinstance(each, FailedRecords):
            place = stored([each.event(0)], after=sequence - 1)[0]
            found.append(
                StoredFailures(
                    application=APPLICATION,
                    sequence=sequence,
                    received_at=place.received_at,
                    batch=place.batch,
                    failed=each,
                )
            )
        else:
            found += stored([each], after=sequence - 1)
    return found


# Few names and numbers, so that events share them; some are unusual.
_keys = st.sampled_from([None, "", "JFK", "a/../b", "\0", "🛫", "k" * 10_000])
_texts = st.sampled_from(["", "plain", "with \0 and 🛫", "x" * 3000])
_instances = st.sampled_from([INSTANCE, OTHER_INSTANCE])
_commands = st.sampled_from([UUID(int=1), UUID(int=2)])
_positions = st.none() | st.sampled_from([-(2**63), 0, 7, 2**63 - 1])
_counts = st.sampled_from([0, 1, 3, 2**63 - 1])
_moments = st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 2), timezones=st.just(UTC))
_runs = st.builds(
    Run,
    pipeline=st.sampled_from(["delays", "gains"]),
    checkpoint=st.sampled_from(["cp-1", "cp-2"]),
    epoch=st.integers(0, 3),
)
_fingerprints = st.sampled_from(["1-aaaa", "1-bbbb"])
_failures = st.builds(
    Failure,
    stage=_texts,
    exception_class=_texts,
    condition=st.none() | _texts,
    message=_texts,
    fingerprint=_fingerprints,
    frame=st.none() | _texts,
    attempts=_counts,
    inner_class=st.none() | _texts,
    inner_condition=st.none() | _texts,
    field=st.none() | _texts,
)
_versions = st.dictionaries(_texts, _texts, max_size=2)
_bodies = st.none() | st.builds(
    Body, record=st.none() | st.dictionaries(_texts, _texts | _counts), stack=st.none() | _texts
)

_task = {"task": _keys}
_failing = {"failure": _failures}


def dead_lettered(
    positions: Sequence[int], *, key: str | None = "JFK", minute: int = 0, **more: object
) -> Event:
    """Return the event about the dead letters of a task at some positions."""
    values = {
        "fingerprints": [FAILURE.fingerprint],
        "causes": [1] * len(positions),
        "sizes": [100] * len(positions),
        "positions": positions,
    } | more
    data = RecordsDeadLettered(
        task=key,
        count=len(positions),
        place="/data/dlq/day=2026-11-20/7",
        format="parquet",
        first_position=positions[0],
        last_position=positions[-1],
        records=dead_letter_columns.pack(**values),  # type: ignore[arg-type]  # columns by name
    )
    return event(data, minute=minute)


def redriven(
    positions: Sequence[int],
    *,
    key: str | None = "JFK",
    minute: int = 0,
    redrive: UUID | None = None,
) -> Event:
    """Return the event about redriven dead letters of a task."""
    data = RecordsRedriven(
        task=key,
        count=len(positions),
        first_position=positions[0],
        last_position=positions[-1],
        actor="ana",
        reason="mended",
        redrive=redrive,
        records=dead_letter_columns.pack_ids(positions=positions, ids=()),
    )
    return event(data, minute=minute)


def held(
    count: int, *, key: str = "JFK", minute: int = 0, processed_until: int | None = None
) -> Event:
    """Return the event about the held records of a task."""
    data = RecordsHeld(task=key, held=count, processed_until=processed_until)
    return event(data, minute=minute)


def _dead_letter_columns(count: int) -> st.SearchStrategy[DeadLetterColumns]:
    def column(low: int, high: int) -> st.SearchStrategy[list[int]]:
        return st.lists(st.integers(low, high), min_size=count, max_size=count)

    positions = column(-(2**63), 2**63 - 1).map(sorted)
    ids = st.lists(
        st.binary(min_size=16, max_size=16).map(bytes.hex), min_size=count, max_size=count
    )
    values = {"fingerprints": st.just(["1-a"]), "causes": column(0, 1), "sizes": column(0, 2**31)}
    return st.one_of(
        st.builds(dead_letter_columns.pack, positions=positions, **values),
        st.builds(dead_letter_columns.pack, positions=st.none(), ids=ids, **values),
    )


failed_records = st.one_of(
    st.builds(
        RecordFailed,
        position=_positions,
        response=st.sampled_from(FinalResponse),
        key=_keys,
        with_source=st.booleans(),
        **_task,
        **_failing,
    ),
    st.builds(
        FailuresCounted,
        response=st.sampled_from(FinalResponse),
        count=_counts,
        first_position=_positions,
        last_position=_positions,
        **_task,
        **_failing,
    ),
)
task_events = st.one_of(
    failed_records,
    st.builds(
        RecordsDeadLettered,
        count=_counts,
        ids=st.lists(_texts, max_size=3).map(tuple),
        place=_texts,
        format=_texts,
        first_position=_positions,
        last_position=_positions,
        **_task,
    ),
    st.integers(1, 3).flatmap(
        lambda count: st.builds(
            RecordsDeadLettered,
            count=st.just(count),
            place=_texts,
            format=_texts,
            first_position=_positions,
            last_position=_positions,
            records=_dead_letter_columns(count),
            **_task,
        )
    ),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3).flatmap(
        lambda positions: st.builds(
            RecordsRedriven,
            count=st.just(len(positions)),
            first_position=_positions,
            last_position=_positions,
            records=st.just(dead_letter_columns.pack_ids(positions=sorted(positions), ids=())),
            **_task,
        )
    ),
    st.builds(
        DeadLettersFailed,
        failures=_counts,
        waiting=_counts,
        place=_texts,
        format=_texts,
        **_task,
        **_failing,
    ),
    st.builds(TaskPaused, position=_positions, failure=st.none() | _failures, **_task),
    st.builds(RecordsHeld, held=_counts, first_position=_positions, **_task),
    st.builds(
        TaskResumed,
        how=st.sampled_from(ResumeHow),
        position=_positions,
        skipped=_counts,
        **_task,
    ),
    st.builds(TaskDied, position=_positions, **_task, **_failing),
    st.builds(TaskRestarted, **_task),
    st.builds(RetriesCounted, **_task, retries=_counts),
)
_digests = st.none() | st.sampled_from(["4" + "0" * 31, "b" + "f" * 31])
reports = st.builds(
    StateReported,
    tasks=st.lists(
        st.builds(
            TaskReported,
            status=st.sampled_from(["RUNNING", "PAUSED", "DEAD"]),
            position=_positions,
            failure=st.none() | _failures,
            held=_counts,
            **_task,
        ),
        max_size=3,
    ).map(tuple),
    above=_digests,
    through=_digests,
)
#: The description of a run with default values.
POLICY = PipelineDescribed(
    stages=(
        StageDescribed(name="source", kind="Source", answer="FAIL", origin="default"),
        StageDescribed(name="produce", kind="Sink", answer="FAIL", origin="default"),
    ),
    sink="tests.sink",
    uncaught="SHUTDOWN_CLIENT",
)
_answers = st.none() | st.sampled_from(["CONTINUE", "RETRY", "PAUSE", "FAIL"])
_limits = st.none() | st.integers(-1, 3) | _counts
policies = st.builds(
    PipelineDescribed,
    stages=st.lists(
        st.builds(
            StageDescribed,
            name=_texts,
            step=st.none() | _texts,
            kind=_texts,
            answer=st.none() | st.sampled_from(["CONTINUE", "PAUSE", "FAIL"]),
            handler=st.none() | _texts,
            origin=st.sampled_from(["on_error", "configuration", "limit", "default"]),
            on=st.dictionaries(_texts, st.sampled_from(["CONTINUE", "RETRY"]), max_size=2),
        ),
        max_size=2,
    ).map(tuple),
    sink=_texts,
    tolerance_limit=_limits,
    rate_limit=_limits,
    rate_duration=st.sampled_from(["minute", "hour", "day"]),
    outage_share=st.none() | st.just(0.5),
    dead_letter_place=st.none() | _texts,
    uncaught=_texts,
    commanded=st.lists(
        st.builds(
            StageCommanded,
            name=_texts,
            answer=st.sampled_from(["CONTINUE", "PAUSE"]),
            actor=st.none() | _texts,
            since=_moments,
        ),
        max_size=2,
    ).map(tuple),
)
thread_events = st.one_of(
    st.builds(ThreadStarted),
    policies,
    st.builds(PolicyChanged, stage=_texts, answer=_answers, actor=st.none() | _texts),
    st.builds(PipelinePaused, since=_moments, until=st.none() | _moments, actor=st.none() | _texts),
    st.builds(PipelineResumed, actor=st.none() | _texts, reason=st.none() | _texts),
    st.builds(ThreadDied, reason=_texts, failure=st.none() | _failures, recordless=st.booleans()),
    st.builds(ThreadReplaced, reason=_texts, wait_ms=_counts, replacement=_counts),
    st.builds(
        OutageFound,
        failure=st.just(FAILURE),
        failed=_counts,
        records=_counts,
        response=st.sampled_from([FinalResponse.PAUSE, FinalResponse.FAIL]),
    ),
)
_few = st.integers(0, 10**6)
flow_events = st.builds(
    FlowMeasured,
    minute=_moments.map(lambda moment: moment.replace(second=0, microsecond=0)),
    micro_batches=_few,
    records_in=_few,
    records_out=_few,
    failed=_few,
    skipped=_few,
    held=_few,
    drained=_few,
    durations=st.dictionaries(st.sampled_from(["total:12", "write:3", "source:0"]), _few),
    last_batch_at=st.none() | _moments,
    backlog=st.none() | _few,
    watermark=st.none() | _moments,
)
instance_events = st.one_of(
    st.builds(InstanceStarted, host=_texts, pid=_counts, versions=_versions),
    st.builds(InstanceStopping, reason=_texts, error=st.booleans()),
    st.builds(
        InstanceStopped,
        reason=_texts,
        error=st.booleans(),
        failure=st.none() | _failures,
        recordless=st.booleans(),
    ),
)
answers = st.one_of(
    st.builds(CommandDelivered, command=_commands),
    st.builds(
        CommandApplied,
        command=_commands,
        detail=st.none() | _texts,
        test=st.none() | st.builds(RecordTest, rows=_counts, failure=st.none() | _failures),
    ),
    st.builds(CommandRefused, command=_commands, reason=_texts),
)
issued_commands = st.builds(
    CommandIssued,
    command=_commands,
    kind=st.sampled_from(CommandKind),
    actor=_texts,
    target=_positions,
    stage=st.none() | _texts,
    answer=_answers,
    error=st.booleans(),
    pipeline=st.just("delays"),
    checkpoint=st.none() | st.just("cp-1"),
    task=_keys,
    position=_positions,
    rollout=st.none() | st.builds(Rollout, fingerprint=st.none() | _fingerprints, tasks=_counts),
    part_of=st.none() | _commands,
    redrive=st.none() | st.builds(Redrive, records=_counts, patch=st.none() | _texts),
    slice=st.none() | st.builds(RedriveSlice, first=_counts, count=_counts),
    instances=st.lists(_instances, unique=True).map(tuple),
    expires_at=_moments,
)


_group = {"fingerprint": _fingerprints, "reason": st.none() | _texts}
acts = st.one_of(
    st.builds(ErrorGroupResolved, actor=_texts, **_group),
    st.builds(ErrorGroupReopened, actor=_texts, **_group),
    st.builds(
        ErrorGroupMuted,
        actor=_texts,
        until=st.none() | _moments,
        failures=st.none() | _counts,
        period_seconds=st.none() | st.sampled_from([60, 3600]),
        **_group,
    ),
    st.builds(ErrorGroupAssigned, actor=_texts, assignee=st.none() | _texts, **_group),
    st.builds(ErrorGroupUnmuted, actor=st.none() | _texts, **_group),
    st.builds(NoteAdded, actor=_texts, text=_texts, fingerprint=st.none() | _fingerprints),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3).flatmap(
        lambda positions: st.builds(
            DeadLettersDiscarded,
            pipeline=st.sampled_from(["delays", "gates"]),
            checkpoint=st.sampled_from(["cp-1", "cp-2"]),
            task=_keys,
            count=st.just(len(positions)),
            first_position=st.just(min(positions)),
            last_position=st.just(max(positions)),
            actor=_texts,
            reason=_texts,
            records=st.just(dead_letter_columns.pack_ids(positions=sorted(positions), ids=())),
        )
    ),
)


def _enveloped(data: st.SearchStrategy[EventData]) -> st.SearchStrategy[Event]:
    return st.builds(
        Event,
        occurred_at=_moments,
        data=data,
        instance=_instances,
        run=_runs,
        caused_by=st.none() | _commands,
        body=_bodies,
    )


#: All events of agents.
agent_events = _enveloped(
    st.one_of(
        task_events,
        reports,
        thread_events,
        flow_events,
        instance_events,
        answers,
        st.builds(ApplicationLatched, reason=_texts, actor=st.none() | _texts),
        st.builds(ApplicationShutdownRequested, reason=_texts, failure=st.none() | _failures),
    )
)
#: Events of people and the server.
server_events = _enveloped(
    st.one_of(
        issued_commands,
        acts,
        st.builds(CommandExpired, command=_commands, reason=_texts, of_instance=_instances),
        st.builds(CommandExpired, command=_commands, reason=_texts),
        st.builds(CommandCancelled, command=_commands, reason=_texts),
        st.builds(ApplicationOpened, reason=st.none() | _texts),
        st.builds(TaskDismissed, actor=_texts, reason=_texts, **_task),
        st.builds(InstanceLost, last_heard=_moments),
        st.builds(BodyErased, sequence=_counts, actor=_texts, reason=_texts),
        st.builds(QuarantineDismissed, count=_counts, actor=_texts, reason=st.none() | _texts),
        st.builds(QuarantineRequeued, count=_counts, actor=_texts, entry=st.none() | _texts),
        st.builds(InstanceFound),
    )
)
any_event = agent_events | server_events
histories = st.lists(any_event, max_size=30)
#: Mostly failures, with other events between them.
storms = st.lists(st.one_of(*[_enveloped(failed_records)] * 4, any_event), max_size=40)


@st.composite
def _alike(draw: st.DrawFn) -> list[Event]:
    """Failed records with the shared values of columns; sometimes too few for columns."""
    records = st.builds(
        RecordFailed,
        position=_positions,
        response=st.sampled_from(FinalResponse),
        key=_keys,
        recurrence=st.booleans(),
        logged=st.booleans(),
        **_task,
        **_failing,
    )
    first = replace(draw(_enveloped(records)), caused_by=None)
    assert isinstance(first.data, RecordFailed)
    failures = _failures.map(partial(replace, attempts=first.data.failure.attempts))
    found = [first]
    for _ in range(draw(st.integers(MIN_EVENTS - 2, MIN_EVENTS + 2))):
        data = replace(
            first.data,
            task=draw(_keys),
            position=draw(_positions),
            key=draw(_keys),
            failure=draw(failures),
        )
        found.append(replace(first, occurred_at=draw(_moments), body=draw(_bodies), data=data))
    return found


#: Runs of similar failed records, with other events between them.
floods = st.lists(st.one_of(_alike(), _alike(), st.lists(any_event, max_size=2)), max_size=4).map(
    lambda some: [event for events in some for event in events]
)
