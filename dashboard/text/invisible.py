r"""Control characters, and characters that change the direction of text, on pages: `\u202e`.

They could hide a part of a text, or show it in another order. Values of forms, URLs and exports
keep them.
"""

from __future__ import annotations

import re
from typing import Any

from django.template.backends.django import DjangoTemplates, Template

_CHARACTERS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
_INVISIBLE = re.compile(_CHARACTERS)
#: Line ends of templates stay, and so do tags with their attributes.
_IN_HTML = re.compile(rf"<[^>]*>|\r\n|{_CHARACTERS}")


def visible(text: str) -> str:
    """Return a text with invisible and misleading characters escaped."""
    return _INVISIBLE.sub(_escaped, text)


def visible_html(html: str) -> str:
    """Return a page with the invisible characters between its tags as escapes."""
    if _INVISIBLE.search(html) is None:
        return html
    return _IN_HTML.sub(lambda found: found[0] if len(found[0]) > 1 else _escaped(found), html)


class EscapingTemplate(Template):
    """A template whose result has no invisible characters."""

    def render(self, context: Any = None, request: Any = None) -> Any:
        """Return the page as safe text."""
        html = super().render(context, request)
        return type(html)(visible_html(html))


class Templates(DjangoTemplates):
    """Django's templates: all pages and dialogs come from here."""

    def get_template(self, template_name: str) -> Template:
        """Return a template by its name."""
        return EscapingTemplate(super().get_template(template_name).template, self)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
