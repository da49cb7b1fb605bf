"""Charts, sparklines, gauges, and the small cells of the task grid.

The repeated parts are written at once: a template tag for each of hundreds of numbers would take
longer than the rest of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from django import template
from django.template import Context
from django.urls import reverse
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from arrester.controlplane.domain.state import failure_text
from arrester.controlplane.domain.state.live_runs import RunStatus
from arrester.controlplane.domain.state.states import GroupState, TaskState, ThreadState
from arrester.dashboard.components.chart import (
    HEIGHT,
    SPARK_HEIGHT,
    SPARK_WIDTH,
    Chart,
    Column,
    Spark,
)
from arrester.dashboard.templatetags.formats import day_minute, key
from arrester.dashboard.templatetags.states import colour, in_run
from arrester.dashboard.text import policy_text
from arrester.dashboard.text.policy_text import Meter

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
    # The callers escape texts.
    return mark_safe("".join(parts))  # nosec B308 B703


@register.simple_tag
def spark(drawn: Spark | None, words: str = "failed in 24 h") -> SafeString:
    """Draw a sparkline with its sum as text for screen readers."""
    if drawn is None:
        return format_html('<span class="muted small">0 {}</span>', words)
    return format_html(
        '<span class="spark"><svg viewBox="0 0 {} {}" aria-hidden="true"><path d="{}"/></svg>'
        '<span class="hidden-text">{} {}, at most {} in an hour</span></span>',
        int(SPARK_WIDTH),
        int(SPARK_HEIGHT),
        drawn.path,
        f"{drawn.total:,}",
        words,
        f"{drawn.most:,}",
    )


@register.simple_tag
def spark_of(sparks: Mapping[tuple[str, str], Spark], group: GroupState) -> SafeString:
    """Draw the sparkline of an error group."""
    drawn: SafeString = spark(sparks.get((group.application, group.fingerprint)))
    return drawn


@register.filter
def percent(share: float) -> str:
    """Return a share as hundredths, for drawings of width 100."""
    return f"{100 * share:.1f}"


@register.simple_tag(takes_context=True)
def nearest_limit(context: Context, task: TaskState, thread: ThreadState) -> Meter | None:
    """Return the gauge of the limit that a task is nearest to; None if it has used nothing."""
    return _nearest(task, thread, context["now"])


def _nearest(task: TaskState, thread: ThreadState, now: datetime) -> Meter | None:
    if task.spent is None:
        return None
    meters = policy_text.meters(task, thread, now=now)
    used = [each for each in meters if each.gauge.used]
    return max(used, key=lambda each: each.gauge.share, default=None)


@register.simple_tag(takes_context=True)
def dense_cells(
    context: Context, tasks: Sequence[TaskState], thread: ThreadState, run: RunStatus
) -> SafeString:
    """Draw each task in a cell of one character; its title has the text.

    Not a template: a page contains hundreds of them.
    """
    prefix, now, then = reverse("tasks") + "/", context["now"], context.get("then", "")
    # The past tolerance usage is unknown.
    meters = (None if then else _nearest(task, thread, now) for task in tasks)
    return format_html_join(
        "",
        '<li id="cell-{0}"><a class="cell {1}" href="{4}{0}{5}" title="{2}">'
        '<span class="letter" aria-hidden="true">{3}</span></a></li>',
        (
            (task.id.digest, _look(task, meter), _title(task, word, meter), word[0], prefix, then)
            for task, meter in zip(tasks, meters, strict=False)
            for word in [in_run(task, run)]
        ),
    )


def _look(task: TaskState, meter: Meter | None) -> str:
    """Return the colour of a cell; a nearly used limit underlines it."""
    near = meter is not None and meter.gauge.share >= policy_text.NEARLY
    return f"{colour(task.status)}{' near-limit' if near else ''}"


def _title(task: TaskState, word: str, meter: Meter | None) -> str:
    held = f", {task.held:,} held" if task.held else ""
    why = (
        f": {failure_text.cause(task.failure)}"[:80]
        if task.failure and task.status != "RUNNING"
        else ""
    )
    skipped = f"; skipped {meter.sum}" if meter else ""
    return f"{key(task.id)[:60]} {word}{held}{why}{skipped}"
