"""Show one task, command or error group."""

from __future__ import annotations

import re
from uuid import UUID

import click

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.commands.completion import complete_task
from arrester.cli.issue import progress_sentence
from arrester.cli.names import find_group, find_task, task_name, task_state
from arrester.cli.session import Session, with_session
from arrester.cli.verdicts import sentence

#: Version of the algorithm, and digits: `1-2fd4…`.
_FINGERPRINT = re.compile(r"([^/]+/)?\d+-[0-9a-f]{8,}")


@click.command()
@click.argument("name", metavar="TASK|COMMAND|ERROR", shell_complete=complete_task)
@with_session
def show(session: Session, *, name: str) -> None:
    """Show a task by name or id, a command by id, or an error group by fingerprint."""
    if _is_command(name):
        session.print(session.client.get(f"commands/{UUID(name)}"), _show_command)
    elif _FINGERPRINT.fullmatch(name):
        session.print(find_group(session.client, name), _show_group)
    else:
        session.print(find_task(session.client, name), _show_task)


def _is_command(name: str) -> bool:
    """Whether the name is a UUID with hyphens: without them it is the id of a task."""
    try:
        return "-" in name and str(UUID(name)) == name.lower()
    except ValueError:
        return False


def _show_task(task: Json) -> None:
    drain = task["drain"]
    failure = task["failure"] or {}
    output.print_details(
        [
            ("task", task_name(task)),
            ("id", task["id"]),
            ("status", task_state(task)),
            ("stopped", _moment(task["first_stopped_at"])),
            ("last change", _moment(task["status_changed_at"])),
            ("resumed at", task["pause_ends_at"]),
            ("position", task["position"]),
            ("held records", task["held"]),
            ("failed records", task["failed"]),
            ("stage", failure.get("stage")),
            ("exception", failure.get("exception_class")),
            ("message", failure.get("message")),
            ("place", failure.get("frame")),
            ("error group", failure.get("fingerprint")),
            ("owner", task.get("owner")),
            ("checkpoint", task["checkpoint"]),
            ("last run ended", _moment(task["last_run_ended_at"])),
            ("drain", drain and f"{drain['records_per_second']:,.0f} records/s"),
            ("drained at", drain and drain["done_at"]),
        ]
    )


def _show_command(command: Json) -> None:
    verdict, progress, rollout = command["verdict"], command["progress"], command["rollout"]
    redrive, redriven = command["redrive"], command["redrive_progress"]
    output.print_details(
        [
            ("command", command["id"]),
            ("kind", command["kind"]),
            ("application", command["application"]),
            ("task", command["task"]),
            ("pipeline", command["pipeline"]),
            ("status", command["status"]),
            ("outcome", command["outcome"]),
            ("verdict", verdict and sentence(verdict)),
            ("tasks", rollout and rollout["tasks"]),
            ("progress", progress and progress_sentence(command)),
            ("dead letters", redrive and redrive["records"]),
            ("patch", command["patch"] or (redrive and redrive["patch"])),
            ("progress", redriven and _redrive_progress(redriven)),
            ("position", command["position"]),
            ("actor", command["actor"]),
            ("reason", command["reason"]),
            ("issued", _moment(command["issued_at"])),
            ("delivered", _moment(command["delivered_at"])),
            ("finished", _moment(command["finished_at"])),
            ("part of", command["part_of"]),
        ]
    )


def _redrive_progress(progress: Json) -> str:
    names = ("issued", "redriven", "processed", "failed_again", "discarded", "not_taken")
    counts = ", ".join(f"{progress[name]:,} {name.replace('_', ' ')}" for name in names)
    # A server of an older version does not have it.
    waiting = (progress.get("waiting") or {}).get("text")
    return f"{counts}; {waiting}" if waiting else counts


def _show_group(group: Json) -> None:
    output.print_details(
        [
            ("error group", group["fingerprint"]),
            ("title", group.get("title")),
            ("application", group["application"]),
            ("status", group["status"]),
            ("pipeline", group["pipeline"]),
            ("stage", group["stage"]),
            ("exception", group["exception_class"]),
            ("condition", group["condition"]),
            ("innermost cause", _inner(group)),
            ("field", group.get("field")),
            ("message", group["message"]),
            ("place", group["frame"]),
            ("failed records", group["count"]),
            ("first seen", _moment(group["first_seen_at"])),
            ("last seen", _moment(group["last_seen_at"])),
            ("set by", group["actor"]),
            ("reason", group["reason"]),
            ("notes", group["notes"]),
            ("owner", group.get("owner")),
            ("assigned to", group.get("assignee")),
            ("earlier group", group.get("earlier_fingerprint")),
        ]
    )


def _inner(group: Json) -> str | None:
    """Return class and condition of the innermost cause; None if the server has none."""
    found = filter(None, (group.get("inner_class"), group.get("inner_condition")))
    return " ".join(found) or None


def _moment(moment: str | None) -> str | None:
    """Return a time in UTC with its age."""
    if moment is None:
        return None
    return f"{output.parsed(moment):%Y-%m-%d %H:%M:%S} UTC ({output.age(moment)} ago)"
