"""The command that a refusal names: a link on pages, nothing where many refusals are counted."""

from __future__ import annotations

import re

from django.urls import reverse
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

_COMMAND = re.compile(r" \(command ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\)")


def linked(text: str) -> SafeString:
    """Return a text as HTML, with a link to the page of the command in place of its id."""
    # The pattern allows only hexadecimal digits, so the result is as safe as the escaped text.
    return mark_safe(_COMMAND.sub(_link, conditional_escape(text)))


def without_id(text: str) -> str:
    """Return a text without the id of a command: equal refusals are equal texts."""
    return _COMMAND.sub("", text)


def _link(found: re.Match[str]) -> str:
    url = reverse("command", args=[found[1]])
    return format_html(' (<a href="{}">view command</a>)', url)
