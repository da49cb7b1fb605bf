"""The writes by people and by the clock: one function each.

Each action of a person has an id: a repetition changes nothing and has the same result. A command
that the state forbids is in the log as CommandIssued and CommandRefused, and raises
CommandForbidden (with `state` and `sequence`). An invalid request (without a required reason)
raises InvalidValue and is not logged; NotFound is raised for missing things. Only `send_test_error`
needs Redis: commits are relayed later.
"""

from __future__ import annotations

from arrester.controlplane.actions.access.accounts import (
    NO_ROLE,
    AccountAct,
    activate_account,
    change_role,
    create_account,
    deactivate_account,
    reset_password,
)
from arrester.controlplane.actions.access.act_requests import (
    check_request,
    forget_request,
    forget_requests,
)
from arrester.controlplane.actions.access.agents import (
    AgentAct,
    NewAgentCredential,
    add_agent_credential,
    agent_redis_url,
    ensure_agent_credential,
    remove_agent_credential,
)
from arrester.controlplane.actions.access.application_roles import grant_role, withdraw_role
from arrester.controlplane.actions.access.logins import (
    change_own_password,
    check_not_locked,
    record_login,
    record_logout,
    record_refused_login,
    record_wrong_password,
    unlock,
)
from arrester.controlplane.actions.access.saved_filters import delete_filter, save_filter
from arrester.controlplane.actions.access.single_sign_on import sign_on
from arrester.controlplane.actions.access.tokens import (
    NewToken,
    create_token,
    revoke_token,
    use_token,
)
from arrester.controlplane.actions.commands import (
    MAX_TASKS,
    TaskResult,
    cancel_command,
    command_application,
    command_task,
    command_tasks,
    dismiss_tasks,
    issue_command,
    open_application,
    resume_task,
    resume_tasks,
    shut_down_application,
    skip_record,
    start_application,
    task_id,
)
from arrester.controlplane.actions.dead_letters import (
    MAX_DISCARDED,
    MAX_IDS,
    Discarded,
    discard_dead_letters,
    plan_discard,
)
from arrester.controlplane.actions.dry_run import DryRun, dry_run
from arrester.controlplane.actions.error_groups import (
    MAX_GROUPS,
    ActedOn,
    act_on_group,
    act_on_groups,
    note_on_command,
    note_on_group,
    note_on_task,
)
from arrester.controlplane.actions.owners import (
    OwnerRuleForm,
    delete_owner_rule,
    save_owner_rule,
)
from arrester.controlplane.actions.quarantine import (
    Requeued,
    dismiss,
    dismiss_one,
    requeue,
    requeue_one,
)
from arrester.controlplane.actions.redrives import (
    RedrivePlan,
    advance_redrive,
    no_redrive,
    no_test,
    plan_redrive,
    refused_redrives,
    start_redrive,
    test_dead_letter,
)
from arrester.controlplane.actions.reveal import reveal
from arrester.controlplane.actions.rollouts import advance_rollout, start_rollout
from arrester.controlplane.actions.send_test_error import send_test_error
from arrester.controlplane.actions.tasks_by_key import task_of_key
from arrester.controlplane.actions.timeouts import expect, record_running, watch

__all__ = [
    "MAX_DISCARDED", "MAX_GROUPS", "MAX_IDS", "MAX_TASKS", "NO_ROLE", "AccountAct", "ActedOn",
    "AgentAct", "Discarded", "DryRun", "NewAgentCredential", "NewToken", "OwnerRuleForm",
    "RedrivePlan", "Requeued", "TaskResult", "act_on_group", "act_on_groups", "activate_account",
    "add_agent_credential", "advance_redrive", "advance_rollout", "agent_redis_url",
    "cancel_command", "change_own_password", "change_role", "check_not_locked", "check_request",
    "command_application", "command_task", "command_tasks", "create_account", "create_token",
    "deactivate_account", "delete_filter", "delete_owner_rule", "discard_dead_letters", "dismiss",
    "dismiss_one", "dismiss_tasks", "dry_run", "ensure_agent_credential", "expect",
    "forget_request", "forget_requests", "grant_role", "issue_command", "no_redrive", "no_test",
    "note_on_command", "note_on_group", "note_on_task", "open_application", "plan_discard",
    "plan_redrive", "record_login", "record_logout", "record_refused_login", "record_running",
    "record_wrong_password", "refused_redrives", "remove_agent_credential", "requeue",
    "requeue_one", "reset_password", "resume_task", "resume_tasks", "reveal", "revoke_token",
    "save_filter", "save_owner_rule", "send_test_error", "shut_down_application", "sign_on",
    "skip_record", "start_application", "start_redrive", "start_rollout", "task_id", "task_of_key",
    "test_dead_letter", "unlock", "use_token", "watch", "withdraw_role",
]  # fmt: skip
