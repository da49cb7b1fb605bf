"""Test an edited record: the running pipeline runs its steps on it, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.dashboard.permissions import Person, for_operators
from arrester.domain.errors import CommandForbidden, InvalidValue
from arrester.domain.events import CommandKind
from arrester.domain.state.states import CommandState, if_set


@require_POST
@for_operators
def test(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Test the record that stopped a task, with the reviewed patch."""
    kind, patch = CommandKind.TEST_RECORD, request.POST.get("patch", "")
    issue = partial(actions.command_task, kind, digest, actor=who.name, patch=patch)
    return _issued(request, issue, patch)


@require_POST
@for_operators
def test_dead_letter(request: HttpRequest, who: Person, application: str, id: str) -> HttpResponse:
    """Test a dead letter with the patch of the dialog, if there is one."""
    access.require(application)
    patch = request.POST.get("patch", "").strip() or None
    issue = partial(actions.test_dead_letter, application, id, actor=who.name, patch=patch)
    return _issued(request, issue, patch)


@require_GET
@for_operators
def result(request: HttpRequest, who: Person, id: UUID) -> HttpResponse:
    """Return the result of a test, or what it waits for."""
    command = queries.command(id)
    access.require(command.application)
    return _result(request, command)


def _issued(
    request: HttpRequest, issue: Callable[[], CommandState], patch: str | None
) -> HttpResponse:
    """Issue a test; one in progress for the same change is shown instead."""
    try:
        command = issue()
    except InvalidValue as error:
        return _result(request, reason=f"{error}", status=400)
    except CommandForbidden as refused:
        pending = refused.pending and queries.command(refused.pending.id)
        is_same = pending and pending.kind == CommandKind.TEST_RECORD
        if not pending or not is_same or if_set(pending.patch) != patch:
            return _result(request, reason=f"{refused}", status=409)
        command = pending
    return _result(request, command)


def _result(
    request: HttpRequest,
    command: CommandState | None = None,
    *,
    reason: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "command": command,
        "reason": reason or (command and command.outcome) or "",
        "is_same": command is not None and _is_same_cause(command),
    }
    return render(request, "dashboard/dialogs/record_test.html", context, status=status)


def _is_same_cause(command: CommandState) -> bool:
    """Whether the tested record fails with the cause that stopped its task."""
    if not command.test or command.test.failure is None or command.task is None:
        return False
    stopped_by = queries.task(command.task.digest).state.failure
    return stopped_by is not None and stopped_by.fingerprint == command.test.failure.fingerprint
