"""Rendering without a database: records, traces, charts, states, times, colours."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from arrester.dashboard.components import forms
from arrester.dashboard.components.buttons import TaskButton
from arrester.dashboard.components.charts import chart
from arrester.dashboard.components.charts.state_timeline import strip
from arrester.dashboard.templatetags.formats import large, relative
from arrester.dashboard.templatetags.states import ICONS, LOOKS, kind, spark_ui, state
from arrester.dashboard.text import event_text, record_text
from arrester.dashboard.text.command_links import linked
from arrester.domain import visible_text
from arrester.domain.commands.kinds import KINDS, TASK_KINDS
from arrester.domain.events import (
    Body,
    CommandKind,
    DeadLetterIds,
    DeadLettersDiscarded,
    Event,
    EventData,
    RecordsHeld,
    ResumeHow,
    Run,
    StoredEvent,
    TaskDied,
    TaskPaused,
    TaskResumed,
)
from arrester.domain.state.states import (
    ApplicationStatus,
    CommandStatus,
    InstanceState,
    InstanceStatus,
    TaskStatus,
    ThreadStatus,
)
from tests.dashboard.story import TYPO

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CSS = Path("dashboard/static/dashboard/arrester.css")
STATUSES = (TaskStatus, ThreadStatus, InstanceStatus, ApplicationStatus, CommandStatus)


@pytest.mark.parametrize("status", sorted({each.value for each in chain(*STATUSES)}))
def test_every_state_has_a_colour_an_icon_and_a_label(status: str) -> None:
    look = LOOKS[status]
    assert look.icon in ICONS
    assert f".{look.colour} {{" in CSS.read_text()
    assert re.search(r"</svg>[A-Z _]+</span>", state(status))


@pytest.mark.parametrize("address", ["http://driver-1:4040", "https://host/proxy/a?b=<c>"])
def test_the_spark_ui_of_a_live_driver_is_a_link(address: str) -> None:
    live = InstanceState(application="a", id=UUID(int=1), spark_ui=address)
    shown = address.replace("<", "&lt;").replace(">", "&gt;")
    assert f'href="{shown}"' in spark_ui(live)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        (None, InstanceStatus.RUNNING),
        ("javascript:alert(1)", InstanceStatus.RUNNING),
        ("file:///etc/passwd", InstanceStatus.RUNNING),
        ("http:", InstanceStatus.RUNNING),
        ("http://[", InstanceStatus.RUNNING),
        ("http://driver-1:4040", InstanceStatus.NOT_RUNNING),
    ],
)
def test_no_other_address_is_a_link(address: str | None, status: InstanceStatus) -> None:
    given = msgspec.UNSET if address is None else address
    other = InstanceState(application="a", id=UUID(int=1), status=status, spark_ui=given)
    assert spark_ui(other) == ""


def test_every_kind_of_command_has_a_name_and_an_icon() -> None:
    assert [kind(each.value) for each in CommandKind] == [KINDS[each].label for each in CommandKind]
    assert {each.icon for each in TASK_KINDS.values()} <= ICONS.keys()


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(seconds=-3), "just now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=59), "59 min ago"),
        (timedelta(hours=47), "47 h ago"),
        (timedelta(hours=49), "2 d ago"),
    ],
)
def test_relative_times_have_the_largest_unit(ago: timedelta, words: str) -> None:
    assert relative(NOON - ago, now=NOON) == words


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (999_999, "<b>999,999</b>"),
        (1_234_567, '<b title="1,234,567">1.23 m</b>'),
        (9_876_682_920, '<b title="9,876,682,920">9.88 bn</b>'),
        (10**14, '<b title="100,000,000,000,000">100 tn</b>'),
    ],
)
def test_a_large_number_is_shortened_and_exact_in_its_title(number: int, shown: str) -> None:
    assert large(number) == shown


def test_invisible_characters_of_a_record_are_shown() -> None:
    turned = "paid \u202e00001\u202c now"
    assert visible_text.visible(f"{turned}\x00\x1b[31m\t\n") == (
        "paid \\u202e00001\\u202c now\\u0000\\u001b[31m\t\n"
    )
    # The copied text has the same meaning.
    assert json.loads(record_text.pretty({"text": turned})) == {"text": turned}


def test_a_record_shows_which_fields_are_missing_and_why() -> None:
    body = Body(record={"a": None, "b": "", "c": {"d": [1]}}, redacted=("$.secret",))
    shown = [(field.name, field.missing) for field in record_text.fields(body)]
    assert shown == [
        ("a", "NULL"),
        ("b", "empty"),
        ("c", ""),
        ("$.secret", "redacted on the driver"),
    ]


@given(st.text())
def test_a_trace_keeps_every_line(stack: str) -> None:
    assert [line.text for line in record_text.trace(stack)] == stack.splitlines()


@given(st.text())
def test_a_folded_trace_keeps_all_lines_in_order(stack: str) -> None:
    folded = record_text.folds(stack)
    assert [line.text for fold in folded for line in fold.lines] == stack.splitlines()
    assert all(before.own is not after.own for before, after in pairwise(folded))


def test_jvm_frames_of_the_user_and_of_the_platform_are_distinguished() -> None:
    stack = (
        "java.lang.IllegalStateException: no room\n"
        "\tat com.acme.Sink.send(Sink.scala:41)\n"
        "\tat org.apache.spark.rdd.RDD.map(RDD.scala:1)\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "\t... 12 more"
    )
    own, platform = record_text.folds(stack)
    assert [line.text.strip()[:11] for line in own.lines][1] == "at com.acme"
    assert (platform.own, platform.frames) == (False, 3)


CHANGES = st.sampled_from(
    [
        TaskPaused(task="JFK", position=1),
        TaskDied(task="JFK", position=1, failure=TYPO),
        TaskResumed(task="JFK", how=ResumeHow.RETRY),
        RecordsHeld(task="JFK", held=1),
    ]
)


@given(
    st.lists(st.tuples(CHANGES, st.integers(-600, 600), st.integers(1, 3)), max_size=20),
    st.none() | st.integers(-60, 180),
)
def test_a_state_timeline_has_no_gaps_and_ends_with_the_current_state(
    changes: list[tuple[EventData, int, int]], stopped: int | None
) -> None:
    rotations = [
        StoredEvent(
            application="flights",
            sequence=number,
            received_at=NOON,
            batch=UUID(int=number),
            event=Event(
                # A clock that is set back, and late events of an older run.
                occurred_at=NOON + timedelta(minutes=number, seconds=seconds),
                data=data,
                run=Run(pipeline="delays", checkpoint="c", epoch=epoch),
            ),
        )
        for number, (data, seconds, epoch) in enumerate(changes, start=1)
    ]
    ended = None if stopped is None else NOON + timedelta(minutes=stopped)
    drawn = strip(rotations[::-1], now=NOON + timedelta(hours=2), ended=ended)
    if drawn is None:
        assert all(isinstance(data, RecordsHeld) for data, _, _ in changes)
        return
    # The timeline is empty before the first change, and after the end of the run.
    sequences = {each.sequence for each in rotations}
    assert {each.sequence for each in drawn.parts} <= sequences
    assert all(drawn.start <= each.begin < each.end <= drawn.end for each in drawn.parts)
    if ended is None:
        assert drawn.parts[-1].end == drawn.end
    # If the clock put the last change after the end of its run, the last part ends at that change.
    elif ended >= max(each.event.occurred_at for each in rotations) and (
        drawn.parts and drawn.parts[-1].status is TaskStatus.RUNNING
    ):
        assert drawn.parts[-1].end == min(ended, drawn.end)
    for before, after in pairwise(drawn.parts):
        assert before.end == after.begin
    assert all(each.x >= 0 and each.x + each.width <= 100.5 for each in drawn.parts)


@given(st.binary(max_size=5000))
def test_a_hexdump_is_bounded_and_exact(raw: bytes) -> None:
    lines = record_text.hexdump(raw).splitlines()
    shown = bytes.fromhex("".join(line[10:57] for line in lines))
    assert shown == raw[: record_text.SHOWN_BYTES]


def _luminance(colour: str) -> float:
    channels = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(first: str, second: str) -> float:
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


TOKENS = {
    name: values
    for name, *values in re.findall(
        r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", CSS.read_text()
    )
}
STATES = ("running", "paused", "dead", "lost", "open", "quiet")
PAIRS = [
    *((name, f"{name}-tint") for name in STATES),
    *(
        (text, ground)
        for text in ("text", "muted", "link")
        for ground in ("page", "surface", "sunken")
    ),
    ("muted", "quiet-tint"),
    ("dead", "surface"),
    ("on-primary", "primary"),
    ("running", "surface"),
    ("open", "surface"),
]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_texts_are_readable_in_both_themes(text: str, ground: str, theme: int) -> None:
    assert _contrast(TOKENS[text][theme], TOKENS[ground][theme]) >= 4.5


def test_every_rule_of_the_stylesheet_is_used() -> None:
    used = "".join(
        path.read_text()
        for path in Path("dashboard").rglob("*")
        if path.suffix in {".html", ".js", ".py"} and "vendor" not in path.parts
    )
    without_comments = re.sub(r"/\*.*?\*/", "", CSS.read_text(), flags=re.DOTALL)
    selectors = re.findall(r"(?:^|[}\s])([^{}@]+)\{", without_comments)
    classes = set(re.findall(r"\.([a-z][\w-]+)", " ".join(selectors)))
    # The last one is set by htmx.
    built = {*(f"ink-{ink}" for ink in chart.INKS), "htmx-request"}
    assert [name for name in sorted(classes - built) if name not in used] == []


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1 dead letter at 7 by ana: old"), (3, "3 dead letters, 7 to 9 by ana: old")],
)
def test_discarded_dead_letters_are_counted(count: int, text: str) -> None:
    data = DeadLettersDiscarded(
        pipeline="delays",
        checkpoint="0",
        task="JFK",
        count=count,
        first_position=7,
        last_position=6 + count,
        actor="ana",
        reason="old",
        records=DeadLetterIds(ids=bytes(16 * count)),
    )
    assert event_text.sentence(data) == text


@pytest.mark.parametrize("how", ResumeHow)
def test_each_way_to_continue_has_words(how: ResumeHow) -> None:
    resumed = TaskResumed(task="JFK", how=how, position=7, actor="ana")
    assert re.search(r"(record|at 7).* by ana", event_text.sentence(resumed))


def test_one_shortcut_lets_a_task_continue() -> None:
    keys = {kind: TaskButton(row, "", primary=False).key for kind, row in TASK_KINDS.items()}
    shortcuts = {kind: key for kind, key in keys.items() if key}
    assert shortcuts == {CommandKind.RESUME_TASK: "r", CommandKind.RESTART_TASK: "r"}


def test_a_refusal_links_its_command_and_equal_ones_are_counted_together() -> None:
    ids = [uuid4(), uuid4()]
    texts = [f"<b>busy</b>; wait until it ends (command {id})" for id in ids]
    url = reverse("command", args=[ids[0]])
    assert linked(texts[0]) == (
        f'&lt;b&gt;busy&lt;/b&gt;; wait until it ends (<a href="{url}">view command</a>)'
    )
    counted = forms.refusals(Counter(texts))
    assert counted == " 2 refused: <b>busy</b>; wait until it ends."
