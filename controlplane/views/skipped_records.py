"""Where records are after a command or a discard, in words: people read it before they act."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec
from django.conf import settings

from arrester.controlplane import store
from arrester.controlplane.views import rollout_progress, row_mapping
from arrester.controlplane.views.dead_letter_selection import OpenDeadLetter
from arrester.domain.commands.kinds import KINDS, ROLLOUTS, changes_records, skips_records
from arrester.domain.errors import NotFound
from arrester.domain.events import CommandKind, RecordsDeadLettered, ResumeHow, Rollout
from arrester.domain.identity.names import TaskId
from arrester.domain.plural import plural
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import ThreadState

#: The first tasks of a rollout, whose pipelines are considered.
_MOST_TASKS = 500
_STORES_NONE = "pipeline stores no dead letters (errors.dlq.enable)"


class SkippedRecords(StrEnum):
    """What becomes of skipped records."""

    STORED = "STORED"
    #: A pipeline stores no dead letters.
    LOST = "LOST"
    #: An agent of an older version has not reported it.
    UNKNOWN = "UNKNOWN"


class DeadLetterStorage(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the pipelines of some tasks store skipped records, and where."""

    skipped: SkippedRecords
    #: The destination of all of them; None: they have several, or none.
    place: str | None = None


def of_tasks(application: str, tasks: Collection[TaskId]) -> SkippedRecords:
    """Return what becomes of skipped records of tasks; LOST if it is so for one of them."""
    return _storage(application, {each.pipeline for each in tasks}).skipped


def of_rollout(application: str, rollout: Rollout) -> SkippedRecords:
    """Return what becomes of the records that a rollout skips."""
    return of_tasks(application, _tasks_of(application, CommandKind.SKIP_RECORDS, rollout))


def after_command(application: str, kind: CommandKind, tasks: Collection[TaskId]) -> str | None:
    """Return where the records are after a command for tasks; None: it skips and changes none."""
    if not (skips_records(kind) or changes_records(kind)):
        return None
    if kind in ROLLOUTS:
        in_log = f"only in the log if it was reported in full, {_duration('its failure')}"
        subject, stores_none = "Each", f"a {_STORES_NONE}"
    else:
        in_log, subject, stores_none = _in_log(tasks), "The", f"this {_STORES_NONE}"
    if changes_records(kind):
        changed = f"{subject} changed record is processed in place of the failed one"
        return f"{changed}, which is {in_log or 'stored nowhere'}."
    storage = _storage(application, {each.pipeline for each in tasks})
    if KINDS[kind].how is ResumeHow.AT:
        return _skipped_at(storage, in_log, stores_none)
    return _skipped(storage, in_log, f"{subject} skipped record", stores_none)


def after_rollout(application: str, kind: CommandKind, rollout: Rollout) -> str | None:
    """Return where the records are after a rollout; None: it skips and changes none."""
    return after_command(application, kind, _tasks_of(application, kind, rollout))


def after_discard(application: str, dead_letters: Sequence[OpenDeadLetter]) -> str:
    """Return where the records of some dead letters are after they are discarded."""
    places = [place for each in dead_letters[:1] if (place := _place(application, each))]
    if len(dead_letters) == 1:
        where = f"in {places[0]}" if places else "at its destination"
        return f"The record stays {where}. The server lists it {_duration('it was skipped')}."
    such_as = f", such as {places[0]}" if places else ""
    listed = f"The server lists them {_duration('they were skipped')}."
    return f"The records stay at their destination{such_as}. {listed}"


def _place(application: str, one: OpenDeadLetter) -> str | None:
    """Return the destination of a dead letter; None if the log does not have its event any more."""
    try:
        data = store.read_one(application, one.sequence).event.data
    except NotFound:
        return None
    return data.place if isinstance(data, RecordsDeadLettered) else None


def _skipped(storage: DeadLetterStorage, in_log: str, subject: str, stores_none: str) -> str:
    """Return where a skipped record is; it failed."""
    match storage.skipped:
        case SkippedRecords.STORED:
            where = f"in {storage.place}" if storage.place else "at its destination"
            return f"{subject} becomes a dead letter {where}, with your reason."
        case SkippedRecords.LOST if in_log:
            return f"{subject} is {in_log}: {stores_none}."
        case SkippedRecords.LOST:
            return f"{subject} is lost: {stores_none}, and the log does not have it."
        case SkippedRecords.UNKNOWN:
            stored = f"{subject} becomes a dead letter if the pipeline stores dead letters."
            return f"{stored} If not, it is {in_log or 'lost'}."


def _skipped_at(storage: DeadLetterStorage, in_log: str, stores_none: str) -> str:
    """Return where the records are that a resume at a position skips: the first one failed."""
    match storage.skipped:
        case SkippedRecords.STORED:
            return f"Skipped records become dead letters in {storage.place}, with your reason."
        case SkippedRecords.LOST if in_log:
            failed = f"The skipped record that failed is {in_log}. The others are lost"
            return f"{failed}: {stores_none}."
        case SkippedRecords.LOST:
            return f"Skipped records are lost: {stores_none}."
        case SkippedRecords.UNKNOWN:
            stored = "Skipped records become dead letters if the pipeline stores dead letters."
            failed = f"the one that failed is {in_log}, and the others are lost"
            return f"{stored} If not, {failed if in_log else 'they are lost'}."


def _in_log(tasks: Collection[TaskId]) -> str:
    """Return that only the log has the record at which a task stopped, and how long; empty: it
    has no record."""
    digests = [each.digest for each in tasks]
    for state in row_mapping.TASKS.load_readable("digest = ANY(%s::uuid[])", [digests]):
        try:
            body = store.read_one(state.id.application, state.failure_sequence).event.body
        except NotFound:
            return ""
        if body is None or body.record is None:
            return ""
        parts = ["only its beginning"] * (body.cut_from is not None)
        parts += ["without its masked fields"] * (bool(body.redacted) and body.sealed is None)
        some = f" ({', '.join(parts)})" if parts else ""
        return f"only in the log{some}, {_duration('its failure')}"
    return ""


def _duration(begin: str) -> str:
    """Return how long the log keeps what happened then."""
    environment = settings.ENVIRONMENT
    days = plural(environment.retention_days, "day")
    return f"for {'at most ' if environment.retention_gigabytes else ''}{days} after {begin}"


def _tasks_of(application: str, kind: CommandKind, rollout: Rollout) -> Collection[TaskId]:
    return rollout_progress.next_tasks(application, kind, rollout, limit=_MOST_TASKS)


def _storage(application: str, pipelines: Collection[str]) -> DeadLetterStorage:
    threads = row_mapping.THREADS.load_readable("application = %s", [application])
    found = {each.pipeline: _of(each) for each in live(threads) if each.pipeline in pipelines}
    unknown = DeadLetterStorage(skipped=SkippedRecords.UNKNOWN)
    results = [found.get(each, unknown) for each in pipelines]
    for skipped in (SkippedRecords.LOST, SkippedRecords.UNKNOWN):
        if any(each.skipped is skipped for each in results):
            return DeadLetterStorage(skipped=skipped)
    places = {each.place for each in results}
    place = places.pop() if len(places) == 1 else None
    return DeadLetterStorage(skipped=SkippedRecords.STORED, place=place)


def _of(thread: ThreadState) -> DeadLetterStorage:
    if thread.policy is None:
        return DeadLetterStorage(skipped=SkippedRecords.UNKNOWN)
    if thread.policy.dead_letter_format is None:
        return DeadLetterStorage(skipped=SkippedRecords.LOST)
    place = thread.policy.dead_letter_place or thread.policy.dead_letter_format
    return DeadLetterStorage(skipped=SkippedRecords.STORED, place=place)
