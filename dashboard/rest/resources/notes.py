"""REST: notes on error groups, tasks and commands."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.dashboard.rest import base
from arrester.domain.errors import InvalidValue


class NewNoteSerializer(serializers.Serializer[Any]):
    """A note on an error group (`application` and `fingerprint`), a `task`, or a `command`."""

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    text = serializers.CharField(max_length=2000)
    application = serializers.CharField(required=False)
    fingerprint = serializers.CharField(required=False)
    task = serializers.CharField(required=False, help_text="The id of the task.")
    command = serializers.UUIDField(required=False)


class NoteSerializer(serializers.Serializer[Any]):
    """A note that was added."""

    id = serializers.UUIDField()
    actor = serializers.CharField()
    text = serializers.CharField()


class NotesView(base.RestView):
    """Notes."""

    @base.acts(NewNoteSerializer, {201: NoteSerializer})
    def post(self, request: Request) -> Response:
        """Add a note to an error group, a task, or a command: name one of the three."""
        given = base.values(NewNoteSerializer, request.data)
        id, actor = base.act_id(request, given), request.user.get_username()
        about = _add(given, id, actor=actor)
        note = NoteSerializer({"id": id, "actor": actor, "text": given["text"]})
        return base.at(Response(note.data, status=201), *about)


def _add(given: dict[str, Any], id: UUID, *, actor: str) -> tuple[str, *tuple[object, ...]]:
    """Add a note; return the name of the URL of what it is about, and its parts."""
    text = given["text"]
    match given:
        case {"application": application, "fingerprint": fingerprint}:
            actions.note_on_group(application, fingerprint, actor=actor, text=text, id=id)
            return "api-error", application, fingerprint
        case {"task": digest}:
            actions.note_on_task(queries.task(digest).state.id, actor=actor, text=text, id=id)
            return "api-task", digest
        case {"command": command}:
            actions.note_on_command(command, actor=actor, text=text, id=id)
            return "api-command", command
        case _:
            allowed = "application with fingerprint, or task, or command"
            raise InvalidValue("about", None, allowed)
