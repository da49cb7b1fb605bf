"""Invisible and misleading characters on pages are shown as escapes.

Values of forms, URLs and exports keep them.
"""

from __future__ import annotations

import re
from typing import Any

from django.template.backends.django import DjangoTemplates, Template

from arrester.domain.visible_text import CHARACTERS, escaped, has_invisible, visible

#: Line ends of templates stay, and so do tags, but for attributes that are shown.
_IN_HTML = re.compile(rf"<[^>]*>|\r\n|{CHARACTERS}")
_SHOWN_ATTRIBUTE = re.compile(r'\s(?:title|alt|placeholder|aria-[a-z]+)="[^"]*"')


def visible_html(html: str) -> str:
    """Return a page with the invisible characters of its texts and tooltips as escapes."""
    return _IN_HTML.sub(_shown, html) if has_invisible(html) else html


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


def _shown(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith("<"):
        return _SHOWN_ATTRIBUTE.sub(lambda attribute: visible(attribute[0]), text)
    return text if text == "\r\n" else escaped(text)
