"""Gauges of tolerance, and the small cells of the task grid."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django import template
from django.template import Context
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from arrester.controlplane.domain.state.states import TaskState, ThreadState
from arrester.dashboard.templatetags.arrester import colour, key
from arrester.dashboard.text import event_text, policy_text
from arrester.dashboard.text.policy_text import Meter

register = template.Library()


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
    spent = [each for each in meters if each.gauge.used]
    return max(spent, key=lambda each: each.gauge.share, default=None)


@register.simple_tag(takes_context=True)
def dense_cells(context: Context, tasks: Sequence[TaskState], thread: ThreadState) -> SafeString:
    """Draw each task in a cell with room for a letter only; its title has the text.

    Not a template: a page contains hundreds of them.
    """
    prefix, now, then = reverse("tasks") + "/", context["now"], context.get("then", "")
    # What counted against a limit in the past is not known.
    meters = (None if then else _nearest(task, thread, now) for task in tasks)
    return format_html_join(
        "",
        '<li id="cell-{0}"><a class="cell {1}" href="{4}{0}{5}" title="{2}">'
        '<span class="letter" aria-hidden="true">{3}</span></a></li>',
        (
            (task.id.digest, _look(task, meter), _title(task, meter), task.status[0], prefix, then)
            for task, meter in zip(tasks, meters, strict=False)
        ),
    )


def _look(task: TaskState, meter: Meter | None) -> str:
    """Return the colour of a cell; a nearly used limit underlines it."""
    near = meter is not None and meter.gauge.share >= policy_text.NEARLY
    return f"{colour(task.status)}{' near-limit' if near else ''}"


def _title(task: TaskState, meter: Meter | None) -> str:
    held = f", {task.held:,} held" if task.held else ""
    why = (
        f": {event_text.cause(task.failure)}"[:80]
        if task.failure and task.status != "RUNNING"
        else ""
    )
    left_out = f"; left out {meter.sum}" if meter else ""
    return f"{key(task.id)[:60]} {task.status}{held}{why}{left_out}"
