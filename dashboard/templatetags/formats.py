"""The display of numbers, times, keys and texts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from django import template
from django.template import Context
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from arrester.controlplane import queries
from arrester.dashboard.permissions import REQUIRES
from arrester.dashboard.text import (
    command_links,
    event_text,
    named_fields,
    record_text,
    verdict_text,
)
from arrester.dashboard.text.glossary import TERMS
from arrester.domain import failure_text, visible_text
from arrester.domain.identity.names import TaskId
from arrester.domain.plural import plural
from arrester.domain.state.error_groups import PERIODS

#: Names with values in a line.
_PAIRS = 20

register = template.Library()
register.filter("at", event_text.at)
register.filter("linked", command_links.linked)
register.filter("without_id", command_links.without_id)
register.filter("pretty", record_text.pretty)
register.filter("revealed", record_text.revealed)
register.filter("short", failure_text.short)
register.filter("failure_title", failure_text.title)
register.filter("visible", visible_text.visible)
register.filter("ordinal", verdict_text.ordinal)
register.filter("verdict", verdict_text.sentence)
register.simple_tag(named_fields.marked)


@register.simple_tag
def term(name: str, text: str = "") -> SafeString:
    """Link a text to its term in the glossary, with the definition as its title."""
    return format_html(
        '<a class="term" href="{}#{}" title="{}">{}</a>',
        reverse("glossary"),
        slugify(name),
        TERMS[name].replace("`", ""),
        text or name,
    )


@register.filter
def shell(text: str) -> str:
    """Return a text as one word of a shell, always in quotes: `&` and `?` of a URL mean something
    there."""
    quoted = shlex.quote(text)
    return quoted if quoted.startswith("'") else f"'{text}'"


@register.filter
def why_not(reason: str) -> str:
    """Return why a button is disabled as a sentence. A missing role is not a matter of time."""
    if reason.startswith(REQUIRES):
        return reason[:1].upper() + reason[1:]
    return f"Not now: {reason}"


@register.filter
def get(known: Mapping[Any, Any], key: object) -> Any:
    """Return the value of a key; None if there is none."""
    return known.get(key)


@register.filter
def first_pairs(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the first names with their values: a foreign sender may have very many."""
    return [*islice(values.items(), _PAIRS)]


@register.filter
def count(value: int) -> str:
    """Return a number with thousands separators: 18,233."""
    return f"{value:,}"


@register.filter
def large(value: int) -> SafeString:
    """Show a number in large type, shortened like 9.88 bn if it is too long, with the full one
    as its title."""
    for size, word in ((10**12, "tn"), (10**9, "bn"), (10**6, "m")):
        if value >= size:
            return format_html(
                '<b title="{}">{} {}</b>', f"{value:,}", f"{value / size:,.3g}", word
            )
    return format_html("<b>{}</b>", f"{value:,}")


@register.filter
def destination(place: str) -> str:
    """Return the short name of a place of dead letters: the last folder of a path above the day."""
    folder = place.partition("/day=")[0].rstrip("/")
    return folder.rpartition("/")[2] or place


@register.filter
def position(value: int | None) -> str:
    """Return a position for a table."""
    return "-" if value is None else f"{value:,}"


@register.filter
def key(id: TaskId) -> str:
    """Return the display name of the task's key."""
    if id.key is None:
        return "(no key)"
    return id.key or "(empty)"


@register.filter
def key_search(record_key: str) -> str:
    """Return the path of the search for records with a key; empty if it cannot be searched for."""
    q = queries.field_term("key", record_key)
    # A request with a NUL character is refused.
    searchable = len(q) <= queries.MAX_SEARCH and "\0" not in q
    return f"{reverse('search')}?{urlencode({'q': q})}" if searchable else ""


@register.filter("plural")
def with_noun(value: int, words: str) -> str:
    """Return the number and the matching form: `{{ n|plural:"task,tasks" }}`."""
    one, _, many = words.partition(",")
    return plural(value, one, many)


@register.filter
def minutes(seconds: int) -> str:
    """Return a number of seconds in minutes."""
    return f"{seconds // 60:,} min"


@register.filter
def skew(seconds: float) -> str:
    """Return how far a clock is ahead or behind."""
    if abs(seconds) < 1:
        return "within 1 s"
    return f"{abs(seconds):,.0f} s {'ahead' if seconds > 0 else 'behind'}"


@register.filter
def seconds(value: float) -> str:
    """Return a duration: 0.05 s, 1.3 s, 42 s."""
    digits = 2 if value < 1 else 1 if value < 10 else 0
    return f"{value:,.{digits}f} s"


@register.filter
def period(seconds: int) -> str:
    """Return the name of a period."""
    return PERIODS.get(seconds) or f"{seconds:,} s"


@register.simple_tag(takes_context=True)
def ago(context: Context, moment: datetime | None) -> str | SafeString:
    """Show the age of something; the page's script updates it."""
    if moment is None:
        return "never"
    return _time(moment, "ago", relative(moment, now=context["now"]))


@register.simple_tag(takes_context=True)
def since(context: Context, moment: datetime) -> SafeString:
    """Show since when something holds, and for how long."""
    return format_html("since {} ({})", clock(moment), ago(context, moment))


@register.simple_tag
def until(moment: datetime) -> SafeString:
    """Show the remaining time; the page's script counts down."""
    return _time(moment, "left", f"until {_utc(moment):%H:%M:%S} UTC")


@register.filter
def clock(moment: datetime) -> SafeString:
    """Show a time to the second; the page's script converts it to the chosen zone."""
    return _time(moment, "clock", f"{_utc(moment):%Y-%m-%d %H:%M:%S}")


@register.filter
def minute(moment: datetime) -> SafeString:
    """Show the hour and minute of a time, as on an axis."""
    return _time(moment, "minute", f"{_utc(moment):%H:%M}")


@register.filter
def day_minute(moment: datetime) -> SafeString:
    """Show the day, hour and minute of a time, as on an axis of some days."""
    return _time(moment, "moment", f"{_utc(moment):%m-%d %H:%M}")


def _time(moment: datetime, form: str, text: str) -> SafeString:
    utc = _utc(moment)
    return format_html(
        '<time datetime="{}" data-form="{}" title="{} UTC">{}</time>',
        utc.isoformat(timespec="milliseconds"),
        form,
        f"{utc:%Y-%m-%d %H:%M:%S}",
        text,
    )


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def relative(moment: datetime, *, now: datetime) -> str:
    """Return how long before `now` the moment was, in the largest suitable unit."""
    seconds = int((now - moment).total_seconds())
    if seconds < 0:
        return "just now"
    if seconds < 60:
        return f"{seconds} s ago"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    if seconds < 172_800:
        return f"{seconds // 3600} h ago"
    return f"{seconds // 86_400} d ago"
