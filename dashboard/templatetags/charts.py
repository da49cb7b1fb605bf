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

from arrester.dashboard.components.charts import chart_shapes as shapes
from arrester.dashboard.components.charts import sparkline
from arrester.dashboard.components.charts.chart import Chart, Column, MarkerKind, Shape
from arrester.dashboard.components.charts.sparkline import Spark
from arrester.dashboard.components.time_range import Span
from arrester.dashboard.templatetags.formats import key
from arrester.dashboard.templatetags.states import colour, in_run
from arrester.dashboard.text import policy_text
from arrester.dashboard.text.policy_text import Meter
from arrester.domain import failure_text
from arrester.domain.state.live_runs import RunStatus
from arrester.domain.state.states import GroupState, TaskState, ThreadState

register = template.Library()


@register.simple_tag(takes_context=True)
def zoomed_out(context: Context, span: Span) -> str:
    """Return the query of the page with a wider time range."""
    query = context["request"].GET.copy()
    for name in ("range", "after"):
        query.pop(name, None)
    wider = span.wider(now=context["now"])
    query["from"], query["to"] = (_minute(each) for each in (wider.since, wider.until) if each)
    return f"?{query.urlencode()}"


@register.filter
def columns_of(chart: Chart) -> int:
    """Return the number of the last column."""
    return chart.span.columns - 1


@register.filter
def value_text(value: float | None, chart: Chart) -> str:
    """Return a value of a chart in full, with its unit."""
    return shapes.text(value, chart.unit)


@register.filter
def value_ticks(chart: Chart) -> tuple[str, ...]:
    """Return the texts of the value axis, from the top down."""
    return shapes.value_ticks(chart)


@register.filter
def last_values(chart: Chart) -> str:
    """Return the last column as text, for screen readers."""
    last = chart.columns[-1]
    named = zip(_names(chart), last.values, strict=True)
    values = ", ".join(f"{name} {shapes.text(value, chart.unit)}" for name, value in named)
    return f"{last.moment.astimezone(UTC):%m-%d %H:%M} UTC: {values}"


@register.simple_tag
def chart_shapes(chart: Chart) -> SafeString:
    """Draw the grid, the gaps, the series, the compared line, and the lines of markers."""
    ticks = (f"M{6 * tick.percent:g} 0v100" for tick in shapes.time_ticks(chart.span))
    parts = [("grid-line", f"M0 0h600M0 50h600M0 100h600{''.join(ticks)}")]
    parts.append(("gap", shapes.gaps(chart)))
    if chart.shape is Shape.BARS:
        parts += [(f"bars ink-{each.colour}", each.path) for each in shapes.bars(chart)]
    else:
        parts += [(f"curve ink-{each.colour}", each.path) for each in shapes.lines(chart)]
    parts.append(("compared", shapes.compared(chart)))
    parts.append(("marker-line", shapes.marker_lines(chart)))
    return _safe(f'<path class="{name}" d="{path}"/>' for name, path in parts if path)


@register.simple_tag
def chart_times(chart: Chart) -> SafeString:
    """Write the time axis; the page's script converts it to the chosen zone."""
    return _safe(
        f'<text x="{tick.percent}%" y="12" text-anchor="{_anchor(tick.percent)}"'
        f' data-form="{tick.form}" data-time="{tick.moment.isoformat()}">{_tick(tick)}</text>'
        for tick in shapes.time_ticks(chart.span)
    )


def _anchor(percent: float) -> str:
    return "start" if percent < 3 else "end" if percent > 97 else "middle"


def _tick(tick: shapes.TimeTick) -> str:
    is_day = tick.form == "day" or (tick.moment.hour, tick.moment.minute) == (0, 0)
    return f"{tick.moment:%m-%d}" if is_day else f"{tick.moment:%H:%M}"


@register.simple_tag
def chart_flags(chart: Chart) -> SafeString:
    """Draw a flag for each column with markers; it leads to the newest one."""
    return _safe(
        f'<a href="{escape(column.markers[-1].url)}" tabindex="-1" class="flag"'
        f' data-at="{column.number}"><circle cx="{percent}%" cy="8" r="7.5"/>'
        f'<text x="{percent}%" y="11.5" text-anchor="middle">{_initial(column)}</text>'
        f"<title>{escape(_happened(column))}</title></a>"
        for column, percent in shapes.marked(chart)
    )


def _initial(column: Column) -> str:
    kinds = {each.kind for each in column.markers}
    return kinds.pop()[0].upper() if len(kinds) == 1 else "+"


def _happened(column: Column) -> str:
    return "; ".join(f"{each.moment.astimezone(UTC):%H:%M} {each.text}" for each in column.markers)


@register.filter
def marker_kinds(chart: Chart) -> list[tuple[str, str]]:
    """Return the initials of the drawn markers with their meaning, for the legend."""
    kinds = {each.kind for column in chart.columns for each in column.markers}
    return [(each[0].upper(), each.value) for each in MarkerKind if each in kinds]


@register.simple_tag
def chart_head(chart: Chart) -> SafeString:
    """Write the heads of the columns of values in the table of a chart."""
    colours = [*(each.colour for each in chart.series), ""]
    return _safe(
        [
            *(
                f'<th scope="col" class="number" data-ink="{ink}">{escape(name)}</th>'
                for name, ink in zip(_names(chart), colours, strict=False)
            ),
            '<th scope="col">Events</th>' if chart.markers else "",
        ]
    )


@register.simple_tag
def chart_rows(chart: Chart) -> SafeString:
    """Write the rows of the table of a chart."""
    return _safe(
        f'<tr data-at="{each.number}"><th scope="row">{_linked(each, chart.link)}</th>'
        + "".join(f"<td>{shapes.text(value, chart.unit)}</td>" for value in each.values)
        + (f'<td class="events">{_marker_links(each)}</td>' if chart.markers else "")
        + "</tr>"
        for each in chart.rows
    )


def _names(chart: Chart) -> list[str]:
    names = [each.name for each in chart.series]
    return names if chart.compared is None else [*names, chart.compared.name]


def _marker_links(column: Column) -> str:
    return "<br>".join(
        f'<a href="{escape(each.url)}">{escape(each.text)}</a>' for each in column.markers
    )


def _linked(column: Column, link: str) -> str:
    # The page's script writes the title.
    utc = column.moment.astimezone(UTC)
    moment = f'<time datetime="{utc:%Y-%m-%dT%H:%MZ}" data-form="moment">{utc:%m-%d %H:%M}</time>'
    if not link:
        return moment
    between = f"from={_minute(column.moment)}&amp;to={_minute(column.end)}"
    return f'<a href="{escape(link)}{between}">{moment}</a>'


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
        sparkline.WIDTH,
        sparkline.HEIGHT,
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
