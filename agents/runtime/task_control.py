"""Commands for tasks from the author's own code, and the counts of all tasks."""

from __future__ import annotations

from collections.abc import Sequence

from arrester.agents.runtime.protocols import Thread
from arrester.controlplane.domain.error_policy.policy import Answer
from arrester.controlplane.domain.error_policy.respond import as_answer
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import Response, ResumeHow, StageAnswer
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.states import Counters, TaskState

COUNTED = [name for name in Counters.__struct_fields__ if name != "last_failure_timestamp"]


def apply_command(
    threads: Sequence[Thread],
    task: TaskState | TaskId,
    how: ResumeHow | None,
    *,
    target: int | None = None,
    actor: str | None = None,
    reason: str | None = None,
) -> bool:
    """Apply the command in the thread that runs the task; return False if no thread runs it or
    its state forbids it."""
    # Needs PySpark, which importing this package alone must not.
    from arrester.agents.journal.journal import Superseded

    id = task.id if isinstance(task, TaskState) else task
    for thread in threads:
        if (thread.pipeline_name, thread.checkpoint_id) == (id.pipeline, id.checkpoint):
            try:
                done = thread.resume(id.key, how=how, target=target, actor=actor, reason=reason)
            except Superseded:
                return False
            return done.applied
    return False


def commanded(
    threads: Sequence[Thread],
    pipeline: str,
    stage: str,
    answer: Answer | Response | None,
    *,
    actor: str | None,
    reason: str,
) -> bool:
    """Override the policy of a stage in each run of a pipeline; return whether all runs applied
    it."""
    # Needs PySpark, which importing this package alone must not.
    from arrester.agents.journal.journal import Superseded

    said = None if answer is None else as_answer(answer)
    if answer is not None and said is None:
        raise InvalidValue("answer", answer, "CONTINUE, RETRY, PAUSE or FAIL of agents, or None")
    word: StageAnswer | None = None if said is None else said.value
    runs = [thread for thread in threads if thread.pipeline_name == pipeline]
    try:
        done = [thread.set_policy(stage, word, actor=actor, reason=reason) for thread in runs]
    except Superseded:
        return False
    return bool(done) and all(each.applied for each in done)


def counts(tasks: Sequence[TaskState]) -> dict[str, int]:
    """Return the counts of all tasks under their KIP-298 names."""
    counters = [state.counters for state in tasks]
    totals = {
        name.replace("_", "-"): sum(getattr(each, name) for each in counters) for name in COUNTED
    }
    latest = [each.last_failure_timestamp for each in counters if each.last_failure_timestamp]
    totals["last-failure-timestamp"] = int(max(latest).timestamp() * 1000) if latest else 0
    return totals
