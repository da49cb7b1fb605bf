"""REST: act on error groups, add notes, cancel commands, resume many tasks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.state.error_groups import GroupAct, GroupRequest
from arrester.dashboard.rest import action_serializers, parameters, serializers
from arrester.dashboard.rest.view_base import (
    IDEMPOTENCY_KEY,
    PROBLEMS,
    View,
    asked,
    command_id,
    page_of,
    paged,
)

REFUSED = PROBLEMS | {409: serializers.Problem}


class ActOnGroup(View):
    """Resolve, reopen, mute or unmute an error group."""

    @extend_schema(
        request=action_serializers.NewGroupAct,
        parameters=[IDEMPOTENCY_KEY],
        responses={200: serializers.ErrorGroup} | REFUSED,
    )
    def post(self, request: Request, application: str, fingerprint: str) -> Response:
        """Act on an error group; return the group after the act.

        409 with `state` and `position` if its state forbids it.
        """
        given = asked(action_serializers.NewGroupAct, request.data)
        group = actions.act_on_group(application, _wish(request, given, fingerprint))
        return Response(serializers.ErrorGroup(group).data)


class ActOnGroups(View):
    """Resolve, reopen, mute or unmute many error groups."""

    @extend_schema(
        operation_id="errors_acts_many",
        request=action_serializers.NewGroupsAct,
        parameters=[IDEMPOTENCY_KEY],
        responses={200: action_serializers.ActedOn(many=True)} | PROBLEMS,
    )
    def post(self, request: Request) -> Response:
        """Act on 1 to 100 error groups individually; return the result of each.

        A refusal of one does not affect the others: its `group` is null, and `refused` has the
        reason.
        """
        given = asked(action_serializers.NewGroupsAct, request.data)
        keys = [(each["application"], each["fingerprint"]) for each in given.pop("groups")]
        done = actions.act_on_groups(keys, _wish(request, given, fingerprint=""))
        return Response(action_serializers.ActedOn(done, many=True).data)


def _wish(request: Request, given: dict[str, Any], fingerprint: str) -> GroupRequest:
    id, act = command_id(request, given), GroupAct(given.pop("act"))
    given.pop("id", None)
    if act is not GroupAct.MUTE and given.keys() - {"reason"}:
        name = sorted(given.keys() - {"reason"})[0]
        raise InvalidValue(name, given[name], "nothing, unless it is a MUTE")
    actor = request.user.get_username()
    return GroupRequest(id=id, act=act, fingerprint=fingerprint, actor=actor, **given)


class GroupHistory(View):
    """The history of an error group."""

    @extend_schema(
        parameters=[parameters.PageQuery],
        responses={200: page_of(action_serializers.Act)} | PROBLEMS,
    )
    def get(self, request: Request, application: str, fingerprint: str) -> Response:
        """List the acts on an error group, the ends of its mutes, and its notes."""
        wanted = asked(parameters.PageQuery, request.query_params)
        page = queries.group_history(application, fingerprint, **wanted)
        return paged(action_serializers.as_acts(page), action_serializers.Act)


class Notes(View):
    """Notes."""

    @extend_schema(
        request=action_serializers.NewNote,
        parameters=[IDEMPOTENCY_KEY],
        responses={201: action_serializers.Note} | PROBLEMS,
    )
    def post(self, request: Request) -> Response:
        """Add a note to an error group, a task, or a command: name one of the three."""
        given = asked(action_serializers.NewNote, request.data)
        id = command_id(request, given)
        _write(given, id, actor=request.user.get_username())
        said = {"id": id, "actor": request.user.get_username(), "text": given["text"]}
        return Response(action_serializers.Note(said).data, status=201)


def _write(given: dict[str, Any], id: UUID, *, actor: str) -> None:
    text = given["text"]
    match given:
        case {"application": application, "fingerprint": fingerprint}:
            actions.note_on_group(application, fingerprint, actor=actor, text=text, id=id)
        case {"task": digest}:
            task = queries.task(digest).state.id
            actions.note_on_task(task, actor=actor, text=text, id=id)
        case {"command": command}:
            actions.note_on_command(command, actor=actor, text=text, id=id)
        case _:
            allowed = "application with fingerprint, or task, or command"
            raise InvalidValue("about", None, allowed)


class CancelCommand(View):
    """Cancel a command."""

    @extend_schema(
        request=action_serializers.NewCancel,
        parameters=[IDEMPOTENCY_KEY],
        responses={200: serializers.Command} | REFUSED,
    )
    def post(self, request: Request, id: UUID) -> Response:
        """Cancel a command that no instance has fetched; 409 if it is too late."""
        given = asked(action_serializers.NewCancel, request.data)
        actor = request.user.get_username()
        state = actions.cancel_command(
            id, actor=actor, reason=given.get("reason"), id=command_id(request, given)
        )
        return Response(serializers.Command(state).data)


class ResumeMany(View):
    """Resume many tasks at once."""

    @extend_schema(
        request=action_serializers.NewResume,
        parameters=[IDEMPOTENCY_KEY],
        responses={200: action_serializers.ResumedMany} | PROBLEMS,
    )
    def post(self, request: Request) -> Response:
        """Resume the PAUSED tasks of an application, or those stopped by one error.

        With `dry_run` nothing is done: the response contains the tasks that would be resumed. Send
        their ids as `tasks` to resume exactly these. A refusal of one task does not affect the
        others.
        A repetition with the same id applies to the tasks of the first request.
        Up to 500 tasks are resumed at once; `left` is the number of further ones: repeat with a new
        id until it is 0.
        """
        given = asked(action_serializers.NewResume, request.data)
        id = command_id(request, given)
        digests, left = _chosen(given, id)
        if given["dry_run"] or not digests:
            some = [{"task": digest, "command": None, "refused": ""} for digest in digests]
            return Response({"results": some, "left": left})
        done = actions.resume_tasks(
            digests,
            actor=request.user.get_username(),
            reason=given.get("reason"),
            id=id,
        )
        results = action_serializers.Resumed(done, many=True).data
        return Response({"results": results, "left": left})


def _chosen(given: dict[str, Any], id: UUID) -> tuple[list[str], int]:
    """Return the requested tasks, and the number of further ones."""
    if "tasks" in given:
        return given["tasks"], 0
    application = given.get("application")
    if application is None:
        raise InvalidValue("application", None, "an application, or tasks by their ids")
    found = queries.paused(application, fingerprint=given.get("fingerprint"))
    asked = [] if given["dry_run"] else queries.resumed_by(id, application)
    if asked:
        # Some of these may be PAUSED again.
        return asked, found.left + sum(each.id.digest not in asked for each in found.tasks)
    return sorted(each.id.digest for each in found.tasks), found.left
