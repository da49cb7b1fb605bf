"""The display of error groups, acts and instances."""

from __future__ import annotations

from collections.abc import Mapping

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.domain.state.error_groups import PERIODS
from arrester.controlplane.domain.state.states import GroupState
from arrester.dashboard.templatetags.arrester import icon
from arrester.dashboard.text import audit_text, event_text

register = template.Library()
register.filter("act_about", audit_text.about)
register.filter("act_url", audit_text.url)
register.filter("act_words", audit_text.words_of)
_ACCOUNT_WORDS = {"ROLE_CHANGED": "given the role", "PASSWORD_RESET": "given a new password"}


@register.simple_tag
def recurred() -> SafeString:
    """Mark a group that failed again after it was resolved."""
    return format_html('<span class="state is-dead">{}CAME BACK</span>', icon("again"))


@register.simple_tag
def about(stored: StoredEvent, causes: Mapping[tuple[str, str], GroupState]) -> str:
    """Return the subject of an act; for an error its class, which is clearer than its
    fingerprint."""
    mark = getattr(stored.event.data, "fingerprint", None)
    cause = causes.get((stored.application, mark)) if mark else None
    return audit_text.about(stored) if cause is None else event_text.short(cause.exception_class)


@register.filter
def account_word(act: str) -> str:
    """Return the act on an account, as the end of a sentence."""
    return _ACCOUNT_WORDS.get(act, act.lower())


@register.filter
def skew(seconds: float) -> str:
    """Return how far a clock is ahead or behind."""
    if abs(seconds) < 1:
        return "within 1 s"
    return f"{abs(seconds):,.0f} s {'ahead' if seconds > 0 else 'behind'}"


@register.filter
def period(seconds: int) -> str:
    """Return the name of a period."""
    return PERIODS.get(seconds) or f"{seconds:,} s"
