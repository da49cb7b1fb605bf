"""The text of a verdict: what an applied command has achieved."""

from __future__ import annotations

from arrester.cli.client import Json
from arrester.controlplane.domain.commands.verdict import Outcome


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
