"""Why the state of a task forbids a command: one rule for the server and for agents.

The server refuses by the state that it has stored before it issues a command, an agent by its own
state when it applies the command.
"""

from __future__ import annotations

from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import TaskState, TaskStatus


def pause_refusal(task: TaskState) -> str | None:
    """Return why a task may not be paused by hand, or None."""
    if task.id.key is None:
        return f"{task.id.printed} cannot be paused: only a task with a key can; shut it down"
    if task.status is not TaskStatus.RUNNING:
        return f"only a RUNNING task can be paused; {task.id.printed} is {task.status}"
    return None


def key_refusal(task: TaskId, *, keyed: bool) -> str | None:
    """Return why a task of a pipeline may not be paused by its key, or None."""
    if keyed or task.key is None:
        return None
    return f"{task.pipeline} has one task, without a key: it has no key {task.key!r}"


def restart_refusal(task: TaskState) -> str | None:
    """Return why a task may not be restarted alone, or None."""
    if task.status is not TaskStatus.DEAD:
        return f"only a DEAD task can be restarted; {task.id.printed} is {task.status}"
    return None


def resume_refusal(task: TaskState) -> str | None:
    """Return why a task may not resume, or None."""
    if task.status is not TaskStatus.PAUSED:
        return f"only a PAUSED task can resume; {task.id.printed} is {task.status}"
    return None


def dismiss_refusal(task: TaskState) -> str | None:
    """Return why there is nothing to dismiss, or None."""
    if task.status.stopped or task.held:
        return None
    return (
        "only a task that is PAUSED, DEAD or holds records can be dismissed;"
        f" {task.id.printed} is {task.status}"
    )


def target_refusal(task: TaskState, target: int | None) -> str | None:
    """Return why a task may not continue at a position, or None; without a target it may."""
    if target is not None and task.position is not None and target < task.position:
        return f"{task.id.printed} is held at position {task.position}; {target} is before it"
    return None
