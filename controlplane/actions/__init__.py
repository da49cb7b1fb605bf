"""Every write by people and by the clock: one function each, all on the road of `advance`.

Each action that a person takes has an id: giving the id again changes nothing and answers alike.
A command that the state forbids is in the log as CommandIssued and CommandRefused, and raises
CommandRefused (with `state` and `sequence`); one that is no wish (no reason where one is required)
raises InvalidValue and leaves no trace; what does not exist raises NotFound.
None of them needs Redis: what is committed is relayed later.
"""

from __future__ import annotations

from arrester.controlplane.actions.accounts import (
    AccountAct,
    activate_account,
    change_role,
    create_account,
    deactivate_account,
    reset_password,
)
from arrester.controlplane.actions.bulk_groups import MOST_GROUPS, ActedOn, act_on_groups
from arrester.controlplane.actions.bulk_resume import MOST_AT_ONCE, Resumed, resume_tasks
from arrester.controlplane.actions.commands import (
    cancel_command,
    issue_command,
    open_application,
    pause_task,
    restart_task,
    resume_task,
    resume_task_at,
    set_policy,
    shut_down_application,
    skip_record,
    start_application,
)
from arrester.controlplane.actions.groups import (
    act_on_group,
    note_on_command,
    note_on_group,
    note_on_task,
)
from arrester.controlplane.actions.quarantine import (
    Requeued,
    dismiss,
    dismiss_one,
    requeue,
    requeue_one,
)
from arrester.controlplane.actions.test_error import send_test_error
from arrester.controlplane.actions.timeouts import expected, sighted, watch

__all__ = [
    "MOST_AT_ONCE", "MOST_GROUPS", "AccountAct", "ActedOn", "Requeued", "Resumed", "act_on_group",
    "act_on_groups", "activate_account",
    "cancel_command", "change_role", "create_account", "deactivate_account", "dismiss",
    "dismiss_one", "expected", "issue_command", "note_on_command", "note_on_group", "note_on_task",
    "open_application", "pause_task", "requeue", "requeue_one", "reset_password",
    "restart_task", "resume_task", "resume_task_at", "resume_tasks", "send_test_error",
    "set_policy", "shut_down_application", "sighted", "skip_record", "start_application", "watch",
]  # fmt: skip
