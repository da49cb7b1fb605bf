"""How error groups look beside their state: the last day, and that something came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.domain.events import StoredEvent
from controlplane.domain.groups import PERIODS
from controlplane.domain.states import GroupState
from dashboard import acts, words
from dashboard.templatetags.arrester import icon

register = template.Library()
register.filter("act_about", acts.about)
register.filter("act_url", acts.url)
register.filter("act_words", acts.words_of)
_ACCOUNT_WORDS = {"ROLE_CHANGED": "given the role", "PASSWORD_RESET": "given a new password"}
_WIDTH, _HEIGHT = 4, 20


@register.simple_tag
def recurred() -> SafeString:
    """Say that a group failed again after it was resolved."""
    return format_html('<span class="state is-dead">{}CAME BACK</span>', icon("again"))


@register.simple_tag
def hours(last: Mapping[tuple[str, str], Sequence[int]], group: GroupState) -> SafeString:
    """Draw a group's failed records per hour, as bars that say their sum to a reader."""
    counts = last.get((group.application, group.fingerprint), ())
    total, top = sum(counts), max(counts, default=0)
    if not total:
        return format_html('<span class="muted small">{}</span>', "none in 24 h")
    path = "".join(
        f"M{index * _WIDTH} {_HEIGHT}v{-_tall(count, top)}h{_WIDTH - 1}V{_HEIGHT}z"
        for index, count in enumerate(counts)
        if count
    )
    return format_html(
        '<svg class="hours" viewBox="0 0 {} {}" role="img" aria-label="{}"><path d="{}"/></svg>',
        len(counts) * _WIDTH,
        _HEIGHT,
        f"{total:,} failed in 24 hours, at most {top:,} in one",
        path,
    )


@register.simple_tag
def about(stored: StoredEvent, causes: Mapping[tuple[str, str], GroupState]) -> str:
    """Return what an act was done to; of an error its class, which says more than its mark."""
    mark = getattr(stored.event.data, "fingerprint", None)
    cause = causes.get((stored.application, mark)) if mark else None
    return acts.about(stored) if cause is None else words.short(cause.exception_class)


@register.filter
def account_word(act: str) -> str:
    """Return what was done with an account, as the end of a sentence."""
    return _ACCOUNT_WORDS.get(act, act.lower())


@register.filter
def skew(seconds: float) -> str:
    """Return how far a clock is ahead or behind."""
    if abs(seconds) < 1:
        return "within 1 s"
    return f"{abs(seconds):,.0f} s {'ahead' if seconds > 0 else 'behind'}"


@register.filter
def period(seconds: int) -> str:
    """Return what people call a period."""
    return PERIODS.get(seconds) or f"{seconds:,} s"


def _tall(count: int, top: int) -> int:
    return max(2, round(_HEIGHT * count / top))
