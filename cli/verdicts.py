"""The text of a verdict: what an applied command has achieved."""

from __future__ import annotations

from arrester.cli.client import Json
from arrester.domain.commands.verdict import Outcome


def sentence(verdict: Json) -> str:
    """Return a verdict of REST as text, such as `failed again at position 327,043, attempt 8`."""
    stop = verdict["stop"]
    if stop is None:
        held = f"; {verdict['held']:,} held records left" if verdict["held"] else ""
        return f"no stop since{held}"
    where = "" if stop["position"] is None else f" at position {stop['position']:,}"
    attempt = "" if stop["stops"] is None else f", attempt {stop['stops']:,}"
    if verdict["outcome"] == Outcome.FAILED_AGAIN:
        return f"failed again{where}{attempt}"
    return f"stopped again later{where}"


def is_final(verdict: Json | None, most_held: int) -> bool:
    """Whether a verdict is known: the task has stopped again or processed its failed record.

    That record is the first held one, so the task holds fewer than `most_held`, the most since the
    command was applied. A command that lets no task continue has no verdict.
    """
    if verdict is None or verdict["stop"] is not None:
        return True
    return not verdict["held"] or bool(verdict["held"] < most_held)
