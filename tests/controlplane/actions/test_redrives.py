"""Redrives, against PostgreSQL and Redis; agents are played by their events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, models, queries
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.queries import DeadLetterFilter
from arrester.controlplane.redis import redis_client
from arrester.domain.commands.redrive import RedriveProgress, WaitingRecords
from arrester.domain.errors import CommandForbidden, InvalidValue
from arrester.domain.events import (
    CommandApplied,
    CommandIssued,
    CommandKind,
    CommandRefused,
    Event,
    InstanceStopped,
    Redrive,
    ResumeHow,
    TaskResumed,
)
from arrester.domain.identity import redis_keys
from arrester.domain.identity.dead_letter_ids import dead_letter_ids, split_ids
from arrester.domain.state.states import CommandState, CommandStatus
from arrester.domain.wire import command_codec
from tests import histories
from tests.controlplane import streams
from tests.histories import (
    APPLICATION,
    JFK,
    OTHER_INSTANCE,
    RUN,
    dead_lettered,
    held,
    paused,
    redriven,
)

pytestmark = pytest.mark.usefixtures("fresh_database")
POSITIONS = list(range(20, 0, -1))
PATCH = '[{"op":"replace","path":"/dep_delay","value":null}]'
ALL = DeadLetterFilter()


@pytest.fixture
def skipped(redis: Redis) -> Redis:
    """Return Redis, with a log of twenty dead letters of one task."""
    events = [*histories.started(), dead_lettered(sorted(POSITIONS))]
    send(redis, events)
    return redis


def send(redis: Redis, events: list[Event]) -> None:
    streams.send(redis, events)
    fold_stream.fold_stream(APPLICATION)


def start(wanted: DeadLetterFilter = ALL, **values: object) -> CommandState:
    more = {"actor": "ana", "reason": "mended"} | values
    of_redrive = {
        name: more.pop(name) for name in ("patch", "waves", "records_per_minute") if name in more
    }
    redrive = Redrive(records=0, **of_redrive)  # type: ignore[arg-type]  # by name
    return actions.start_redrive(APPLICATION, wanted, redrive=redrive, **more)  # type: ignore[arg-type]


def relayed(redis: Redis) -> list[CommandIssued]:
    entries = redis_client.entries(redis, redis_keys.commands(APPLICATION))
    return [command_codec.decode_command(fields[b"body"]) for _, fields in entries]


def ids_of(positions: list[int]) -> list[bytes]:
    return list(dead_letter_ids(APPLICATION, RUN.pipeline, RUN.checkpoint, "JFK", positions))


def apply(redis: Redis, *, failing: tuple[int, ...] = (), missing: tuple[int, ...] = ()) -> int:
    """Apply the one command in Redis, as an agent does, and return its number of records."""
    (command,) = relayed(redis)
    assert command.dead_letters is not None
    assert command.kind is CommandKind.REDRIVE_RECORDS
    ids = split_ids(command.dead_letters.ids)
    positions = dict(zip(ids_of(POSITIONS), POSITIONS, strict=True))
    requested = [positions[id] for id in ids]
    assert requested == sorted(requested)
    taken = [each for each in requested if each not in missing]
    again = [each for each in taken if each in failing]
    done = [
        redriven(taken, redrive=command.part_of),
        held(len(taken)),
        histories.event(CommandApplied(command=command.command, detail="some")),
    ]
    send(redis, done)
    send(redis, [*([dead_lettered(again, minute=1)] if again else []), held(0)])
    return len(ids)


def progress(command: CommandState) -> RedriveProgress:
    found = queries.redrive_progress(queries.command(command.id))
    assert found is not None
    return replace(found, last_issued=0, issued_at=None)


def test_dead_letters_are_redriven_in_waves(skipped: Redis) -> None:
    command = start(patch=PATCH)
    assert (command.pipeline, command.checkpoint) == (RUN.pipeline, RUN.checkpoint)
    (first,) = relayed(skipped)
    assert first.dead_letters is not None
    assert first.dead_letters.patch == PATCH
    assert first.dead_letters.since == first.dead_letters.until == histories.NOON
    actions.watch()
    assert relayed(skipped) == [first]  # It is not answered yet.
    sizes = []
    while relayed(skipped):
        sizes.append(apply(skipped, failing=(3, 4), missing=(9,)))
        actions.watch()
    assert sizes == [1, 2, 17]
    found = queries.command(command.id)
    assert found.status is CommandStatus.APPLIED
    assert found.outcome == "17 processed, 2 failed again, 1 not redriven"
    assert progress(command) == RedriveProgress(commands=3, issued=20, processed=17, failed_again=2)
    # What failed again waits, and can be redriven once more.
    assert actions.plan_redrive(APPLICATION, ALL).records == 3
    actions.watch(now=datetime.now(UTC) + timedelta(hours=2))
    assert not models.RedriveSelection.objects.exists()


def test_a_rate_delays_the_next_records(skipped: Redis) -> None:
    """Of 6 records a minute: 1 at once, 2 after ten seconds, 6 after twenty more."""
    command = start(records_per_minute=6)
    begin = queries.command(command.id).issued_at
    sizes = [apply(skipped)]
    for seconds in (5, 11, 12, 25, 33):
        actions.watch(now=begin + timedelta(seconds=seconds))
        sizes += [apply(skipped)] if relayed(skipped) else [0]
    assert sizes == [1, 0, 2, 0, 0, 6]
    assert queries.command(command.id).status is CommandStatus.ISSUED
    with pytest.raises(InvalidValue, match=r"records_per_minute.*from 1 to 100,000"):
        start(records_per_minute=0)


def test_one_that_is_discarded_meanwhile_is_not_redriven(skipped: Redis) -> None:
    command = start()
    ids = [each.hex() for each in ids_of([2, 20])]
    done = actions.discard_dead_letters(
        APPLICATION, ids=ids, actor="bob", reason="duplicates", id=uuid4()
    )
    assert done.discarded == 2
    sizes = []
    while relayed(skipped):
        sizes.append(apply(skipped))
        actions.watch()
    assert sizes == [1, 1, 16]
    assert queries.command(command.id).outcome == "18 processed, 0 failed again, 2 not redriven"
    status = models.DeadLetterStatus.DISCARDED
    assert models.DeadLetter.objects.filter(status=status).count() == 2


def test_a_redrive_stops_if_its_first_record_fails_again(skipped: Redis) -> None:
    command = start()
    assert apply(skipped, failing=(1,)) == 1
    actions.watch()
    assert relayed(skipped) == []
    found = queries.command(command.id)
    assert found.status is CommandStatus.CANCELLED
    assert found.outcome == "0 processed, 1 failed again; 19 more were not redriven"


def test_a_person_stops_it(skipped: Redis) -> None:
    command = start()
    actions.cancel_command(command.id, actor="bob", reason="wrong patch")
    assert apply(skipped) == 1  # What has begun ends.
    actions.watch()
    assert relayed(skipped) == []
    cancelled = queries.command(command.id)
    assert cancelled.status is CommandStatus.CANCELLED
    assert cancelled.outcome == "cancelled by bob: wrong patch"


def test_a_refused_command_stops_it(skipped: Redis) -> None:
    command = start(waves=False)
    (only,) = relayed(skipped)
    assert only.slice is not None and only.slice.count == 20
    refused = CommandRefused(command=only.command, reason="nothing was found")
    send(skipped, [histories.event(refused)])
    actions.watch()
    found = queries.command(command.id)
    assert (found.status, found.outcome) == (
        CommandStatus.CANCELLED,
        "REFUSED: nothing was found",
    )


def test_a_command_for_a_killed_instance_is_repeated(skipped: Redis) -> None:
    command = start()
    (first,) = relayed(skipped)
    stopped = InstanceStopped(reason="killed", error=True)
    send(skipped, [histories.event(stopped, run=None)])
    actions.watch()
    assert queries.command(first.command).status is CommandStatus.EXPIRED
    assert relayed(skipped) == []  # No instance runs the pipeline.
    assert progress(command) == RedriveProgress(commands=1)
    again = [replace(each, instance=OTHER_INSTANCE) for each in histories.started()]
    send(skipped, again)
    actions.watch()
    (repeated,) = relayed(skipped)
    assert (repeated.slice, repeated.instances) == (first.slice, (OTHER_INSTANCE,))
    assert repeated.command != first.command
    # The killed instance had applied it, and its events come late.
    done = CommandApplied(command=first.command, detail="some")
    send(skipped, [redriven([1], redrive=command.id), held(1), histories.event(done)])
    refused = CommandRefused(command=repeated.command, reason="taken by an earlier redrive")
    send(skipped, [replace(histories.event(refused), instance=OTHER_INSTANCE), held(0)])
    assert progress(command) == RedriveProgress(commands=2, issued=1, processed=1)
    actions.watch()
    (third,) = relayed(skipped)
    assert third.slice is not None and third.slice.first == 1


def test_some_are_chosen_by_id_or_filter(skipped: Redis) -> None:
    chosen = [id.hex() for id in ids_of([7, 5])]
    id = uuid4()
    command = start(ids=chosen, waves=False, command=id)
    assert start(ids=chosen, waves=False, command=id) == command
    assert apply(skipped) == 2
    actions.watch()
    assert queries.command(id).outcome == "2 processed, 0 failed again"
    with pytest.raises(InvalidValue, match="none that waits"):
        start(ids=chosen)
    plan = actions.plan_redrive(
        APPLICATION, DeadLetterFilter(task=JFK.digest), redrive=Redrive(records=0, patch=PATCH)
    )
    assert (plan.records, plan.tasks, plan.more, plan.refused) == (18, 1, False, None)


def test_bad_requests_change_nothing(skipped: Redis) -> None:
    for values, name in (
        ({"patch": "[]"}, "patch"),
        ({"reason": " "}, "reason"),
        ({"ids": ["x"]}, "id"),
        ({"ids": []}, "dead_letters"),
    ):
        with pytest.raises(InvalidValue, match=name):
            start(**values)
    with pytest.raises(InvalidValue, match="an id that no other command has"):
        start(command=actions.shut_down_application(APPLICATION, actor="a", reason="b").id)
    with pytest.raises(CommandForbidden, match="shut down by a"):
        start()
    refused = actions.plan_redrive(APPLICATION, ALL).refused
    assert refused is not None and "shut down by a" in refused
    assert {each.kind for each in relayed(skipped)} == {CommandKind.SHUT_DOWN_APPLICATION}


def test_one_redrive_of_a_pipeline_at_a_time(skipped: Redis) -> None:
    first = start()
    with pytest.raises(CommandForbidden, match="REDRIVE by ana is already in progress") as refused:
        start()
    assert str(refused.value).endswith(f"wait until it ends, or stop it (command {first.id})")
    other = replace(RUN, checkpoint="c2")
    send(skipped, [replace(dead_lettered([1]), run=other)])
    with pytest.raises(InvalidValue, match="one pipeline and one checkpoint"):
        start()


def take(redis: Redis) -> dict[str, list[int]]:
    """Take the records of the one command, as an agent does; return their positions by task."""
    (command,) = relayed(redis)
    assert command.dead_letters is not None and command.part_of is not None
    ids = split_ids(command.dead_letters.ids)
    taken: dict[str, list[int]] = {}
    for key in ("EWR", "JFK", "LGA"):
        names = (APPLICATION, RUN.pipeline, RUN.checkpoint, key)
        known = dict(zip(dead_letter_ids(*names, range(1, 6)), range(1, 6), strict=True))
        if positions := [known[id] for id in ids if id in known]:
            taken[key] = positions
    done = [redriven(each, key=key, redrive=command.part_of) for key, each in taken.items()]
    applied = histories.event(CommandApplied(command=command.command, detail="some"))
    send(redis, [*done, applied])
    return taken


def test_stopped_tasks_delay_no_wave_and_no_other_redrive(redis: Redis) -> None:
    skips = [dead_lettered(range(1, 6), key=key) for key in ("EWR", "JFK", "LGA")]
    stopped = [*paused(key="EWR"), *paused(key="LGA"), held(1, key="EWR"), held(1, key="LGA")]
    send(redis, [*histories.started(), *skips, *stopped])
    waiting = WaitingRecords(records=10, tasks=2, names=("delays_EWR", "delays_LGA"))
    plan = actions.plan_redrive(APPLICATION, ALL)
    assert (plan.records, plan.tasks, set(plan.waiting.names)) == (15, 3, set(waiting.names))
    assert (plan.waiting.records, plan.waiting.tasks) == (10, 2)

    command = start()
    # The first waves have the records of the RUNNING task.
    assert take(redis) == {"JFK": [1]}
    actions.watch()
    assert relayed(redis) == []  # It is not processed yet.
    send(redis, [held(0)])
    actions.watch()
    assert take(redis) == {"JFK": [2, 3]}
    send(redis, [held(1, processed_until=2)])
    assert progress(command).processed == 2
    actions.watch()
    assert relayed(redis) == []
    send(redis, [held(0)])
    actions.watch()
    taken = take(redis)
    assert {key: len(each) for key, each in taken.items()} == {"EWR": 5, "JFK": 2, "LGA": 5}
    actions.watch()
    assert not queries.command(command.id).status.final
    send(redis, [held(0)])
    actions.watch()

    found, after = queries.command(command.id), progress(command)
    assert found.status is CommandStatus.APPLIED
    assert found.outcome == f"5 processed, 0 failed again, {after.waiting.text}"
    assert after.waiting.text.startswith("10 wait for 2 stopped tasks: delays_")
    assert (after.processed, after.redriven, after.waiting.stopped_again) == (5, 10, 0)

    # Another redrive of the pipeline begins, and what waited is processed when its task resumes.
    send(redis, [dead_lettered([6])])
    second = start()
    assert relayed(redis) != []
    resumed = TaskResumed(task="EWR", how=ResumeHow.RETRY)
    send(redis, [histories.event(resumed), held(0, key="EWR")])
    after = progress(command)
    assert (after.processed, after.redriven, after.waiting.records) == (10, 5, 5)
    assert not queries.command(second.id).status.final
    streams.assert_exact()


def test_a_record_at_which_its_task_stops_again_ends_the_redrive(skipped: Redis) -> None:
    command = start()
    (first,) = relayed(skipped)
    applied = histories.event(CommandApplied(command=first.command, detail="some"))
    again = [redriven([1], redrive=command.id), applied, *paused(1), held(1)]
    send(skipped, again)
    actions.watch()
    found = queries.command(command.id)
    assert found.status is CommandStatus.CANCELLED
    assert found.outcome == (
        "0 processed, 0 failed again, 1 waits for 1 stopped task: delays_JFK (1 task stopped"
        " again); 19 more were not redriven"
    )


def test_a_killed_instance_leaves_the_waiting_records_to_the_next_run(skipped: Redis) -> None:
    """The redrive has ended; a new run lets the task continue that a failure had stopped."""
    send(skipped, [*paused(21), held(1)])
    command = start(waves=False)
    (only,) = relayed(skipped)
    applied = histories.event(CommandApplied(command=only.command, detail="some"))
    taken = redriven(sorted(POSITIONS), redrive=command.id)
    send(skipped, [taken, held(21), applied])
    actions.watch()
    assert queries.command(command.id).status is CommandStatus.APPLIED
    stopped = InstanceStopped(reason="killed", error=True)
    send(skipped, [histories.event(stopped, run=None)])
    assert progress(command).waiting.records == 20
    run = replace(RUN, epoch=2)
    started = [replace(each, instance=OTHER_INSTANCE) for each in histories.started()]
    begun = [started[0], replace(started[1], run=run)]
    resumed = [TaskResumed(task="JFK", how=ResumeHow.RESTART), held(19, processed_until=2).data]
    events = [*begun, *(histories.event(each, run=run) for each in resumed)]
    send(skipped, [replace(each, instance=OTHER_INSTANCE) for each in events])
    after = progress(command)
    assert (after.processed, after.redriven, after.waiting.records) == (2, 18, 0)
    streams.assert_exact()


def test_without_a_live_instance_it_is_refused(redis: Redis) -> None:
    send(redis, [dead_lettered([1, 2])])
    with pytest.raises(CommandForbidden, match="no live instance runs delays"):
        start()


def test_the_views_follow_from_the_log(skipped: Redis) -> None:
    start()
    apply(skipped)
    actions.watch()
    streams.assert_exact()
