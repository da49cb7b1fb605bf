"""The repeated parts of a chart, written at once: a template tag for each of hundreds of
numbers would take longer than the rest of the page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from arrester.dashboard.components.chart import HEIGHT, Chart, Column
from arrester.dashboard.templatetags.arrester import day_minute

register = template.Library()


@register.simple_tag
def chart_columns(chart: Chart, errors_of: str, word: str = "failed") -> SafeString:
    """Draw the columns with their tooltips, and links if there are any."""
    tag = "a" if errors_of else "g"
    return _safe(
        f'<{tag}{_link(each, errors_of)} tabindex="-1">'
        f'<rect class="hit" x="{each.x}" y="0" width="{each.width}" height="{HEIGHT:.0f}"/>'
        f"<title>{each.moment.astimezone(UTC):%m-%d %H:%M} UTC: {each.total:,} {escape(word)}"
        f"</title></{tag}>"
        for each in chart.columns
    )


@register.simple_tag
def chart_rows(chart: Chart, errors_of: str) -> SafeString:
    """Write the rows of the table of a chart."""
    return _safe(
        f'<tr><th scope="row">{_linked(each, errors_of)}</th>'
        + "".join(f'<td class="number">{number:,}</td>' for number in each.counts)
        + "</tr>"
        for each in chart.columns
    )


def _linked(column: Column, errors_of: str) -> str:
    link, moment = _link(column, errors_of), day_minute(column.moment)
    return f"<a{link}>{moment}</a>" if link else moment


def _link(column: Column, errors_of: str) -> str:
    if not errors_of:
        return ""
    between = f"from={_minute(column.moment)}&amp;to={_minute(column.end)}"
    return f' href="{escape(errors_of)}{between}"'


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M}"


def _safe(parts: Iterable[str]) -> SafeString:
    return mark_safe("".join(parts))
