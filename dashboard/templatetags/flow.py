"""Numbers of flow: rates, shares and durations; a dash where nothing is known."""

from __future__ import annotations

from collections.abc import Iterable

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from arrester.controlplane.queries import Trend
from arrester.controlplane.store import RunEnd

register = template.Library()
UNKNOWN = "\N{EN DASH}"
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_TRENDS = {Trend.GROWS: ("↑", "grows"), Trend.SHRINKS: ("↓", "shrinks")}


@register.filter
def rate(per_second: float | None) -> str:
    """Return a number per second with as many digits as matter: 0, 0.02, 4.5, 1,250."""
    if per_second is None:
        return UNKNOWN
    if not per_second:
        return "0"
    if per_second < 0.01:
        return "< 0.01"
    return f"{per_second:,.{2 if per_second < 1 else 1 if per_second < 10 else 0}f}"


@register.filter
def share(part: float | None) -> str:
    """Return a share in percent: 0 %, < 0.01 %, 0.25 %, 12 %."""
    if part is None:
        return UNKNOWN
    percent = 100 * part
    if not percent:
        return "0 %"
    if percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.{2 if percent < 1 else 1 if percent < 10 else 0}f} %"


@register.filter
def number_range(least: float, greatest: float) -> str:
    """Return the range of some numbers: 9.2, or 1 to 1,301."""
    first, last = f"{least:,.10g}", f"{greatest:,.10g}"
    return first if first == last else f"{first} to {last}"


@register.filter
def duration(milliseconds: float | None) -> str:
    """Return a duration in the unit that a person reads: 320 ms, 4.2 s, 12 min, 3.5 h."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:,.1f} h"


@register.filter
def backlog(number: int | None, unit: str | None) -> str:
    """Return a backlog with its unit."""
    if number is None:
        return UNKNOWN
    if unit != "bytes":
        return f"{number:,} {unit or 'records'}"
    size, step = float(number), 0
    while size >= 1000 and step < len(_BYTES) - 1:
        size, step = size / 1000, step + 1
    return f"{size:,.{1 if step else 0}f} {_BYTES[step]}"


@register.simple_tag
def trend(of: Trend | None) -> str | SafeString:
    """Show whether a backlog grows or shrinks."""
    if of not in _TRENDS:
        return ""
    sign, word = _TRENDS[of]
    look = "grows" if of is Trend.GROWS else "muted"
    return format_html(
        ' <span class="{}"><span aria-hidden="true">{}</span> {}</span>', look, sign, word
    )


@register.simple_tag
def run_marks(ends: Iterable[RunEnd]) -> SafeString:
    """Show the last ends of runs as marks, the newest last; as one text, since lists have many."""
    marks = "".join(map(_mark, ends))
    return mark_safe(f'<span class="marks">{marks}</span>' if marks else UNKNOWN)


def _mark(end: RunEnd) -> str:
    word, look = ("failed", "is-dead") if end.failed else ("ended", "is-quiet")
    text = f"{word} {end.ended_at:%Y-%m-%d %H:%M} UTC"
    return (
        f'<span class="mark {look}" title="{text}"><span class="hidden-text">{text}</span></span>'
    )
