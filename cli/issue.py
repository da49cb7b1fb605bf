"""Issue a command: dry run, confirmation, waiting for the answer, and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic, sleep
from typing import Any, TypeVar
from uuid import UUID

import click

from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.exit_codes import InvalidInput, NotApplied, Refused, Unreachable
from arrester.cli.session import Session, with_options
from arrester.cli.values import seconds
from arrester.cli.verdicts import is_final, sentence
from arrester.cli.waiting import Waiting
from arrester.domain.commands.kinds import changes_records, skips_records
from arrester.domain.events import CommandKind
from arrester.domain.identity.uuids import uuid7
from arrester.domain.python_versions import UTC

#: The path of redrives.
REDRIVE = "dead-letters/redrive"
FINAL = ("APPLIED", "REFUSED", "EXPIRED", "CANCELLED")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueOptions:
    """The options that all commands have."""

    reason: str | None
    dry_run: bool
    yes: bool
    wait: bool
    timeout: float
    id: UUID | None

    @classmethod
    def pop(cls, options: dict[str, Any]) -> IssueOptions:
        """Remove these options from others and return them."""
        return cls(**{name: options.pop(name) for name in cls.__slots__})


issue_options = with_options(
    click.option(
        "--id", type=click.UUID, help="The id of the command; a repeated id changes nothing."
    ),
    click.option(
        "--timeout", type=seconds, default="60s", metavar="TIME", help="The longest wait. [60s]"
    ),
    click.option("--wait", is_flag=True, help="Wait for the result, and show the verdict."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation."),
    click.option("--dry-run", is_flag=True, help="Show what the command would do; issue nothing."),
    click.option("--reason", "-r", metavar="TEXT", help="The reason, for the log."),
)


def require_reason(reason: str | None, command: str) -> None:
    """Raise InvalidInput if a command has no reason."""
    if not (reason or "").strip():
        raise InvalidInput(f"--reason is missing; allowed: a text, which `{command}` needs")


def issue(
    session: Session,
    body: dict[str, Any],
    options: IssueOptions,
    *,
    subject: str,
    question: str | None = None,
    path: str = "commands",
) -> bool:
    """Issue the command of a body, and print its result with its subject; confirm `question` first.

    The body is posted to `path`.

    Return whether it was issued; a dry run issues nothing.

    Raises:
        Refused: the state forbids it, it was refused or cancelled, its task stopped again, or the
            person declined.
        NotApplied: it expired, or has no final status or verdict in time.
        Unreachable: the server does not answer; the message has the id for a repetition.
    """
    body = body | ({} if options.reason is None else {"reason": options.reason})
    if options.dry_run:
        _show_dry_run(session, body, path)
        return False
    if question is not None and not options.yes:
        _confirm(question + _afterwards(session, body, path))
    id = options.id or uuid7(datetime.now(UTC))
    try:
        command = session.client.post(path, body | {"id": str(id)})
    except Unreachable as error:
        raise Unreachable(
            f"{error.message} Whether the command was issued is unknown: repeat it with --id {id}"
        ) from None
    is_decided = True
    if options.wait:
        command, is_decided = _wait(session, command, subject, options.timeout)
    session.print(command, lambda command: click.echo(_result(command, subject, options)))
    _raise_for(command)
    if not is_decided:
        raise NotApplied(_undecided(command, options.timeout))
    return True


def _afterwards(session: Session, body: dict[str, Any], path: str) -> str:
    """Return where the records are after the command, for the question; empty: it changes none."""
    if path == REDRIVE:
        found = session.client.post(path, body | {"dry_run": True})
        waiting = (found.get("waiting") or {}).get("text")
        return f" {output.plain(waiting)}." if waiting else ""
    kind = CommandKind(body["kind"])
    if not (skips_records(kind) or changes_records(kind)):
        return ""
    found = session.client.post(path, body | {"dry_run": True})
    # A server of an older version has no words for it.
    older = " It is lost unless the pipeline stores dead letters." if skips_records(kind) else ""
    return f" {output.plain(found['afterwards'])}" if found.get("afterwards") else older


def _show_dry_run(session: Session, body: dict[str, Any], path: str) -> None:
    found, kind = session.client.post(path, body | {"dry_run": True}), body.get("kind", "REDRIVE")
    session.print(found, lambda found: output.print_details(_dry_run(kind, found)))
    if found["refused"]:
        raise Refused(f"{kind} would be refused: {found['refused']}")


def _dry_run(kind: str, found: Json) -> list[tuple[str, object]]:
    about: list[tuple[str, object]]
    if "records" in found:
        about = [(name, found[name]) for name in ("pipeline", "records", "tasks")]
    else:
        about = [("tasks", found["total"]), ("instances", len(found["instances"]))]
    dry_run = ("dry run", f"{kind}; nothing was issued")
    if waiting := (found.get("waiting") or {}).get("text"):
        about.append(("waiting", waiting))
    if found.get("skipped"):
        about.append(("skipped records", found["skipped"]))
    if found.get("afterwards"):
        about.append(("afterwards", found["afterwards"]))
    return [dry_run, *about, ("refused", found["refused"])]


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question} Without a terminal this needs --yes")
    if not click.confirm(question, err=True):
        raise Refused("not confirmed; nothing was issued")


def _wait(session: Session, command: Json, subject: str, timeout: float) -> tuple[Json, bool]:
    """Return the command, and whether its status and verdict are final before the timeout."""
    deadline = monotonic() + timeout
    delay, most_held = 0.1, 0
    with Waiting(output.plain(f"{subject}: {command['kind']}"), timeout) as waiting:
        while True:
            try:
                command = session.client.get(f"commands/{command['id']}")
            except Unreachable:
                if monotonic() >= deadline:
                    raise
            verdict = command.get("verdict")
            most_held = max(most_held, verdict["held"] if verdict else 0)
            is_decided = command["status"] in FINAL and is_final(verdict, most_held)
            if is_decided or monotonic() >= deadline:
                return command, is_decided
            waiting.update(command)
            sleep(min(delay, max(0, deadline - monotonic())))
            delay = min(delay * 1.5, 2.0)


def _result(command: Json, subject: str, options: IssueOptions) -> str:
    """Return the result of a command as a line."""
    line = f"{subject}: {command['kind']} {command['status']}"
    has_result = command["redrive"] or command.get("test")
    if command["outcome"] and (command["status"] != "APPLIED" or has_result):
        line += f": {command['outcome']}"
    if verdict := command.get("verdict"):
        line += f"; {sentence(verdict)}"
    if command.get("progress"):
        line += f"; {progress_sentence(command)}"
    if command["status"] not in FINAL and not options.wait:
        line += f"; `arrester show {command['id']}` has its result"
    return output.plain(line)


def progress_sentence(command: Json) -> str:
    """Return the progress of a rollout as text."""
    progress, again = command["progress"], command["progress"]["stopped_again"]
    is_observed = again or command["rollout"]["observe_seconds"]
    return (
        f"{progress['applied']:,} applied, {progress['not_applied']:,} not applied,"
        f" {f'{again:,} stopped again' if is_observed else 'not observed'},"
        f" {progress['waiting']:,} waiting"
    )


def _raise_for(command: Json) -> None:
    """Raise the error of a command without success; its result is already printed."""
    status, id, verdict = command["status"], command["id"], command.get("verdict")
    if status in ("REFUSED", "CANCELLED"):
        raise Refused(f"command {id} is {status}: {command['outcome']}")
    if status == "EXPIRED":
        raise NotApplied(f"command {id} is EXPIRED: {command['outcome']}")
    if (command.get("test") or {}).get("failure"):
        raise Refused(f"command {id} is {status}: the record fails, and nothing was changed")
    if verdict and verdict["stop"] is not None:
        raise Refused(f"command {id} is {status}, but its task {sentence(verdict)}")


def _undecided(command: Json, timeout: float) -> str:
    """Return the error of a command whose status or verdict is not final after the timeout."""
    status, id = command["status"], command["id"]
    if status in FINAL:
        status = f"{status}, but its task has processed no held record"
    waited = output.duration(timeout)
    return f"command {id} is {status} after {waited}; `arrester show {id}` has its result"
