"""An application with all kinds of states, and every page and dialog that shows them."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple
from uuid import UUID

from django.urls import reverse

from arrester.controlplane import actions, alerts, queries
from arrester.controlplane.alerts import configuration, outbox, subscriptions
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.dashboard.pages import applications, errors, tasks
from arrester.domain.events import Body, FinalResponse, RecordFailed, SourceLines
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from tests.dashboard.story import NA, STACK, TYPO, Story, failure, malformed

#: Hostile payloads: right-to-left text, control characters, markup, very long values.
ODD: dict[str, object] = {
    "עברית": "שלום \u202eevil\u202c",
    "emoji 🛫": "👩‍👩‍👧 \U0001d573",
    "html": "<script>alert(1)</script>",
    "control": "a\u0000b\u001b[31m\r\n\ttab",
    "blob": "0123456789abcdef" * 1000,
    "field" * 20: {"nested": [{"deep": "value" * 100}, None, ""]},
}
DEEP = "".join(
    f'  File "/opt/spark/python/lib/pyspark.zip/w{line}.py", line {line}, in f\n    go()\n'
    for line in range(200)
)
ODD_KEY = "ключ-مفتاح-🛫/..?#&"
MALFORMED = malformed()
DIVIDED = malformed(
    inner_class="org.apache.spark.SparkRuntimeException",
    inner_condition="CANNOT_PARSE_JSON_FIELD",
    field="dep_delay",
)
LONG_KEY = "a-rather-long-key-" * 8


class Scene(NamedTuple):
    """The objects that the pages show."""

    story: Story
    #: A RUNNING task, a PAUSED one, one with hostile texts, and one that died alone.
    running: str
    paused: str
    odd: str
    dead: str
    #: A PAUSED task that no run processes.
    gone: str
    resumed: UUID
    waiting: UUID
    dead_letter: int
    dead_letter_id: str
    #: The failure of the record with hostile texts.
    failure: int
    #: The position of the log.
    until: int


def build(story: Story) -> Scene:
    """Create everything that a page can show."""
    other = Story(application="orders", pipeline="ingest", checkpoint="5b1c9a70-2e1f")
    other.starts(host="ip-10-123-234-101.eu-central-1.compute.internal.example", pid=1)
    other.skips("a", 123_456_789_012, ago=timedelta(minutes=9))
    for number in range(50):
        other.skips(f"part-{number}", 1 + number)
    other.loses_heartbeat()
    ended = Story(application="ended")
    ended.starts()
    gone = ended.pauses("JFK", held=3, ago=timedelta(hours=2))
    ended.stops(command=actions.shut_down_application("ended", actor="ada", reason="moved").id)
    second = Story(checkpoint="0dd0dd0d-1111-4c1e-9a2b-61b0f4ad0c11")
    second.starts(host="spark-driver-7")
    # The story's checkpoint is the live one.
    story.epoch += 1
    story.starts()
    _flow(story)
    for minutes in (190, 70, 40, 4):
        story.skips("EWR", minutes, ago=timedelta(minutes=minutes))
    repaired = story.pauses("ORD", held=4, ago=timedelta(minutes=50))
    resumed = actions.resume_task(repaired.digest, actor="ana", reason="the feed is repaired").id
    story.fetches(resumed)
    story.resumes("ORD", resumed)
    paused = story.pauses("JFK", held=1843, ago=timedelta(minutes=12))
    slow = failure("process:проверка", "a.b.ReallyQuiteALongExceptionName", "رسالة \n" + "m" * 900)
    odd = story.pauses(
        ODD_KEY, cause=slow, record=ODD, stack=f"{STACK}{DEEP}ValueError: x", cut_from=3_000_000
    )
    story.pauses(LONG_KEY, held=9_876_543_210, cause=slow)
    for cause in (MALFORMED, DIVIDED):
        record: dict[str, object] = {
            "value": '{"dep_delay": "NA", "origin": "JFK"}',
            "dep_delay": "NA",
        }
        story.pauses("DEN", cause=cause, record=record)
    code = SourceLines(
        first=19, lines=("def f(x):", "    # " + "long " * 50, "", "", "    raise X")
    )
    with_code = RecordFailed(
        task="SFO",
        position=4,
        failure=TYPO,
        response=FinalResponse.CONTINUE,
        with_source=True,
    )
    story.report(with_code, body=Body(record={"x": 1}, stack=STACK, source=code))
    dead = story.dies_alone("SEA", cause=failure("produce", "app.Full", "no room"))
    waiting = actions.resume_task(odd.digest, actor="ana").id
    story.send(b"\x82\xa4type not an event of ours")
    actions.note_on_group("flights", TYPO.fingerprint, actor="ana", text="a note " * 40)
    actions.note_on_task(paused, actor="ana", text="the vendor is informed")
    until = datetime.now(UTC) + timedelta(hours=3)
    mute = GroupRequest(
        id=uuid7(until), act=GroupAct.MUTE, fingerprint=NA.fingerprint, actor="ana", until=until
    )
    actions.act_on_group("flights", mute)
    assign = GroupRequest(
        id=uuid7(until),
        act=GroupAct.ASSIGN,
        fingerprint=TYPO.fingerprint,
        actor="ana",
        assignee="data-quality",
    )
    actions.act_on_group("flights", assign)
    _owner_rules()
    _alert()
    (newest, *_) = queries.dead_letters(queries.DeadLetterFilter(application="flights")).rows
    return Scene(
        story=story,
        running=story.task("EWR").digest,
        paused=paused.digest,
        odd=odd.digest,
        dead=dead.digest,
        gone=gone.digest,
        resumed=resumed,
        waiting=waiting,
        dead_letter=newest.sequence,
        dead_letter_id=newest.id,
        failure=queries.task(odd.digest).state.failure_sequence,
        until=queries.log_positions()["flights"],
    )


def _owner_rules() -> None:
    for rule in (
        actions.OwnerRuleForm(owner="ana", application="flights", stage="process:*"),
        actions.OwnerRuleForm(owner=("A team with a long name " * 4).strip(), pipeline="in*"),
        actions.OwnerRuleForm(owner="data-quality"),
    ):
        actions.save_owner_rule(None, rule, actor="ada")


def _flow(story: Story) -> None:
    """Report an hour of micro-batches, with a gap, and a backlog that grows."""
    for ago in range(59, 0, -1):
        if ago in (30, 31, 32):
            continue
        read, failed = 1_000 + 7 * ago, 12 if ago == 12 else 0
        story.flows(
            ago=ago,
            micro_batches=6,
            records_in=read,
            records_out=read - 2 * failed,
            failed=failed,
            skipped=failed,
            held=failed,
            durations={"total:40": 5, f"total:{45 - ago % 5}": 1, "write:39": 6, "source:25": 6},
            backlog=40_000 - 300 * ago,
            backlog_unit="records",
            last_batch_at=datetime.now(UTC) - timedelta(minutes=ago - 1, seconds=20),
            watermark=datetime.now(UTC) - timedelta(minutes=ago + 10),
        )


def _alert() -> None:
    """Create alerts, a failing channel and its messages."""
    channel, _ = configuration.add_channel("http://127.0.0.1:9/" + "x" * 90, actor="ada")
    quiet = configuration.RuleForm(
        name="nights",
        channel=channel.id,
        causes=(AlertCause.TASKS_DEAD, AlertCause.RECORDS_HELD),
        quiet_from=time(22),
        quiet_until=time(7),
        escalate_minutes=30,
        escalate_to=channel.id,
    )
    configuration.save_rule(None, quiet, actor="ada")
    configuration.request_test(channel.id, actor="ada")
    outbox.send_pending(channel.id)
    form = subscriptions.SubscriptionForm(
        address="http://127.0.0.1:9/" + "y" * 90,
        name="lake",
        event_types=("RecordFailed", "TaskPaused"),
    )
    subscriptions.add(form, actor="ada")
    assert alerts.update(now=datetime.now(UTC))


def pages(scene: Scene) -> dict[str, str]:
    """Return the URL of every page, tab and view, by a name."""
    application = reverse("application", args=["flights"])
    orders = reverse("application", args=["orders"])
    error = reverse("error", args=["flights", TYPO.fingerprint])
    divided = reverse("error", args=["flights", DIVIDED.fingerprint])
    task = reverse("task", args=[scene.paused])
    history = reverse("task-history", args=[scene.paused])
    lists = (
        "pipelines",
        "applications",
        "tasks",
        "errors",
        "commands",
        "dead-letters",
        "held",
        "audit",
    )
    more = ("instances", "quarantine", "settings", "password", "glossary", "alerts", "owners")
    return {
        "overview": "/",
        "overview-24h": "/?range=24h",
        **{name: reverse(name) for name in (*lists, *more, "alert-settings")},
        "pipeline": reverse("pipeline", args=["flights", "delays"]),
        "pipeline-24h": f"{reverse('pipeline', args=['flights', 'delays'])}?range=24h",
        "pipeline-lost": reverse("pipeline", args=["orders", "ingest"]),
        "search": f"{reverse('search')}?q=e",
        "search-records": f"{reverse('search')}?q=position:151974",
        "record": reverse("record", args=["flights", scene.failure]),
        **{f"application-{tab}": f"{application}?tab={tab}" for tab in applications.TABS},
        "application-dense": orders,
        "application-ended": reverse("application", args=["ended"]),
        "task": task,
        "task-odd": reverse("task", args=[scene.odd]),
        "task-running": reverse("task", args=[scene.running]),
        "task-gone": reverse("task", args=[scene.gone]),
        "task-dead": reverse("task", args=[scene.dead]),
        "task-as-of": f"{task}?as_of=@{scene.until}",
        "application-as-of": f"{application}?as_of=@{scene.until}",
        "application-dense-as-of": f"{orders}?as_of=@{queries.log_positions()['orders']}",
        "error-as-of": f"{error}?as_of=@{scene.until}",
        **{f"history-{view}": f"{history}?view={view}" for view in tasks.HISTORY_FORMS},
        **{f"error-{tab}": f"{error}?tab={tab}" for tab in errors.TABS},
        **{f"error-divided-{tab}": f"{divided}?tab={tab}" for tab in ("trace", "record", "why")},
        "error-before-division": reverse("error", args=["flights", MALFORMED.fingerprint]),
        "error-muted": reverse("error", args=["flights", NA.fingerprint]),
        "errors-all": f"{reverse('errors')}?state=all&from=2020-01-01T00:00",
        "errors-none": f"{reverse('errors')}?text=nothing+says+this",
        "command": reverse("command", args=[scene.resumed]),
        "command-waiting": reverse("command", args=[scene.waiting]),
        "dead-letter": reverse("dead-letter", args=["flights", scene.dead_letter_id]),
        "dead-letter-event": reverse("dead-letter-event", args=["flights", scene.dead_letter]),
    }


def dialogs(scene: Scene) -> dict[str, tuple[str, list[str]]]:
    """Return the page of every dialog and the selectors to click, by a name."""
    task = reverse("task", args=[scene.paused])
    application = reverse("application", args=["flights"])
    error = reverse("error", args=["flights", TYPO.fingerprint])
    return {
        "dialog-skip": (task, ["#skip"]),
        "dialog-resume-at": (task, ["#resume-at"]),
        "dialog-pause": (reverse("task", args=[scene.running]), ["#pause"]),
        "dialog-dismiss-task": (reverse("task", args=[scene.gone]), ["#dismiss-task"]),
        "dialog-resume-many": (application, ["#resume-many"]),
        "dialog-rollout": (error, ["#rollout"]),
        "dialog-shut-down": (application, ["#shut-down"]),
        "dialog-shut-down-instance": (
            f"{application}?tab=instances",
            ["[data-shut-down-instance] >> nth=0"],
        ),
        "dialog-start": (reverse("application", args=["ended"]), ["#start"]),
        "dialog-restart-pipeline": (application, ["[data-restart]"]),
        "dialog-pause-pipeline": (application, ["[data-pause-pipeline]"]),
        "dialog-pause-key": (application, ["[data-pause-key]"]),
        "dialog-policy": (f"{application}?tab=policy", [".policy tbody button >> nth=2"]),
        "dialog-dismiss": (reverse("quarantine"), ["button:has-text('Dismiss entry…')"]),
        "dialog-mute": (error, ["#mute"]),
        "dialog-assign": (error, ["#assign"]),
        "dialog-assign-many": (reverse("errors"), ["[data-select-all]", "#many-assign"]),
        "dialog-owner-rule": (reverse("owners"), ["#add-rule"]),
        "dialog-webhook": (reverse("alert-settings"), ["button:has-text('Add webhook…')"]),
        "dialog-saved-filters": (
            f"{reverse('errors')}?state=all",
            [".saved summary", "#save-filter"],
        ),
        "dialog-mute-many": (reverse("errors"), ["[data-select-all]", "#many-mute"]),
        "dialog-redrive": (
            reverse("dead-letter", args=["flights", scene.dead_letter_id]),
            ["#redrive"],
        ),
        "dialog-edit-record": (
            reverse("dead-letter", args=["flights", scene.dead_letter_id]),
            ["#edit-record"],
        ),
        "dialog-mend": (task, ["#mend"]),
        "dialog-discard": (
            f"{reverse('dead-letters')}?application=flights",
            ["#discard-filter"],
        ),
        "dialog-keys": ("/", []),
        "dialog-search": ("/", ["[data-search]"]),
    }
