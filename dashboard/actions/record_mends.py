"""Edit the record that stopped a task; the difference is the JSON Patch of EDIT_RECORD."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import msgspec
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.dashboard.components import buttons, command_delivery, forms
from arrester.dashboard.components.editable_records import Reviewed, of_failure
from arrester.dashboard.pages import tasks
from arrester.dashboard.permissions import Person, for_operators
from arrester.dashboard.text.record_changes import changes
from arrester.dashboard.text.record_fields import fields_again
from arrester.domain.errors import InvalidValue
from arrester.domain.events import CommandKind
from arrester.domain.json_patch import JsonPatch, PatchFailed


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show the record as fields and as JSON; with `patch`, as changed, to edit it again."""
    return _dialog(request, who, digest, again=request.GET.get("patch", ""))


def _dialog(
    request: HttpRequest,
    who: Person,
    digest: str,
    *,
    reviewed: Reviewed | None = None,
    invalid: str = "",
    again: str = "",
) -> HttpResponse:
    """Show the record to edit; with a patch, what it changes."""
    reviewed = reviewed or Reviewed()
    patch, invalid = reviewed.patch, invalid or reviewed.invalid
    detail = queries.task(digest)
    application = detail.state.id.application
    access.require(application)
    live = command_delivery.live_instances(application)
    found = of_failure(detail.failure)
    context = {
        "task": detail.state,
        "found": found,
        "typed": request.POST.get("text", ""),
        "editor": reviewed.editor or found.editor,
        "typed_reason": request.POST.get("reason", ""),
        "patch": patch,
        "recipient": command_delivery.recipient(detail.thread, live),
        "afterwards": queries.after_command(
            application, CommandKind.EDIT_RECORD, [detail.state.id]
        ),
        "test_button": buttons.for_task(who, detail, queries.application(application).state)[
            CommandKind.TEST_RECORD
        ],
        "invalid": invalid,
    }
    if again and found.text:
        with suppress(InvalidValue, PatchFailed):
            typed = msgspec.json.format(JsonPatch(again).apply(found.text))
            context |= {"typed": typed, "editor": fields_again(found.text, typed)}
    if patch and found.text:
        try:
            changed = JsonPatch(patch).apply(found.text)
        except (InvalidValue, PatchFailed) as error:
            context |= {"patch": "", "invalid": f"{error}."}
        else:
            context["changes"] = changes(found.text, changed)
    return forms.dialog(request, "mend", context)


@require_POST
@for_operators
def review(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Show what is changed; nothing is sent yet."""
    detail = queries.task(digest)
    access.require(detail.state.id.application)
    reviewed = of_failure(detail.failure).review(request.POST)
    return _dialog(request, who, digest, reviewed=reviewed)


@require_POST
@for_operators
def issue(request: HttpRequest, who: Person, digest: str) -> HttpResponse:
    """Issue the command with the id of the form."""
    reason, patch = forms.reason(request), request.POST.get("patch", "")
    if reason is None:
        return _dialog(
            request, who, digest, reviewed=Reviewed(patch=patch), invalid=forms.REASON_REQUIRED
        )
    id = forms.act_id(request)
    url = reverse("command", args=[id])
    act = partial(
        actions.command_task,
        CommandKind.EDIT_RECORD,
        digest,
        actor=who.name,
        reason=reason,
        patch=patch,
        command=id,
    )
    show = partial(tasks.show, request, who, digest)
    try:
        return forms.act_and_show(request, act, show, redirect_to=url, link=url)
    except InvalidValue as error:
        return _dialog(request, who, digest, invalid=f"{error}.")
