"""Export an error group as text: for an issue, a script, a shell."""

from __future__ import annotations

import json
import shlex
from typing import NamedTuple

from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.domain.state.states import GroupState
from arrester.dashboard.rest import serializers
from arrester.dashboard.text import event_text

#: Longer traces are cut in an issue.
TRACE_LINES = 60


class Copies(NamedTuple):
    """The same error group in three notations."""

    markdown: str
    json: str
    curl: str


def copies(group: GroupState, example: StoredEvent | None, *, page: str, rest: str) -> Copies:
    """Return the texts; `page` and `rest` are whole URLs."""
    return Copies(
        markdown=_markdown(group, example, page),
        json=json.dumps(serializers.ErrorGroup(group).data, indent=2, ensure_ascii=False),
        curl=f'curl -H "Authorization: Token $ARRESTER_TOKEN" {shlex.quote(rest)}',
    )


def _markdown(group: GroupState, example: StoredEvent | None, page: str) -> str:
    facts = {
        "Where": f"{group.application} / {group.pipeline or '-'}, stage `{group.stage}`",
        "Your code": group.frame and f"`{group.frame}`",
        "Records": f"{group.count:,}{' (partly estimated)' if group.estimated else ''}",
        "First seen": group.first_seen and f"{group.first_seen:%Y-%m-%d %H:%M:%S} UTC",
        "Last seen": group.last_seen and f"{group.last_seen:%Y-%m-%d %H:%M:%S} UTC",
        "State": f"{group.status}{f', {group.reason}' if group.reason else ''}",
        "Page": page,
    }
    lines = [f"## {event_text.short(group.exception_class)}", "", *_fenced(group.message), ""]
    lines += [f"- **{name}**: {value}" for name, value in facts.items() if value]
    stack = example.event.body.stack if example is not None and example.event.body else None
    if stack:
        lines += ["", *_fenced("\n".join(stack.splitlines()[-TRACE_LINES:]))]
    return "\n".join(lines) + "\n"


def _fenced(text: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, text, fence]
