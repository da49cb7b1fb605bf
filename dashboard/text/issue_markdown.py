"""An error group in Markdown, for an issue."""

from __future__ import annotations

from arrester.domain import failure_text
from arrester.domain.events import StoredEvent
from arrester.domain.state.states import GroupState

#: Longer traces are truncated.
TRACE_LINES = 60


def markdown(group: GroupState, example: StoredEvent | None, page: str) -> str:
    """Return the text of an issue; `page` is the full URL of the group's page."""
    facts = {
        "Pipeline": f"{group.application} / {group.pipeline or '-'}, stage `{group.stage}`",
        "Exception": group.condition and f"`{group.exception_class}`, `{group.condition}`",
        "Cause": group.inner_class and f"`{group.inner_class}`",
        "Your code": group.frame and f"`{group.frame}`",
        "Records": f"{group.count:,}{' (partly estimated)' if group.estimated else ''}",
        "Ended runs": group.ended_runs and f"{group.ended_runs:,}",
        "First seen": group.first_seen and f"{group.first_seen:%Y-%m-%d %H:%M:%S} UTC",
        "Last seen": group.last_seen and f"{group.last_seen:%Y-%m-%d %H:%M:%S} UTC",
        "State": f"{group.status}{f', {group.reason}' if group.reason else ''}",
        "Page": page,
    }
    lines = [f"## {failure_text.title(group)}", "", *_fenced(group.message), ""]
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
