"""Actions on pages: by each role, once per form, and refused by state."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.html import escape
from redis import Redis

from arrester.controlplane import actions, queries
from arrester.domain.events import CommandKind, CommandRefused
from arrester.domain.state.states import ApplicationStatus, CommandStatus
from tests.dashboard.accounts import logged_in, make_superuser, make_user
from tests.dashboard.story import NA, POLICIES, RECORD, TYPO, Story

HTMX = {"HX-Request": "true"}


def press(client: Client, url: str, **form: object) -> tuple[int, str]:
    """Press a button; return the status and the HTML of the response."""
    response = client.post(url, {"id": str(uuid4())} | form, headers=HTMX)
    return response.status_code, response.content.decode()


def commands() -> list[tuple[str, str]]:
    return [(each.kind.value, each.status.value) for each in queries.commands().rows]


def test_resume_is_one_click_and_shows_its_progress(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    status, page = press(operator, reverse("resume", args=[task]))
    assert status == 200
    assert "waiting for an instance" in page and 'id="resume"' not in page
    command = queries.commands().rows[0]
    assert (command.kind, command.actor) == (CommandKind.RESUME_TASK, "ana")
    flights.fetches(command.id)
    flights.resumes("JFK", command.id)
    after = operator.get(reverse("task", args=[task]), headers=HTMX).content.decode()
    assert "APPLIED" in after and "only a PAUSED task can resume" in after


def test_a_double_click_is_one_command(flights: Story, operator: Client) -> None:
    url = reverse("resume", args=[flights.pauses("JFK").digest])
    command = str(uuid4())
    assert press(operator, url, id=command)[0] == 200
    status, page = press(operator, url, id=command)
    assert status == 200 and "No command was issued" not in page
    assert commands() == [("RESUME_TASK", "ISSUED")]
    status, page = press(operator, url)
    assert status == 409 and "RESUME_TASK by ana is already in progress" in page
    assert f'it (<a href="{reverse("command", args=[command])}">view command</a>).' in page


def test_the_result_of_an_earlier_command_is_not_the_answer_to_a_click(
    flights: Story, operator: Client
) -> None:
    task = flights.pauses("JFK").digest
    url = reverse("resume", args=[task])
    first = uuid4()
    press(operator, url, id=first)
    flights.resumes("JFK", first)
    flights.pauses("JFK")
    # A window that has not been refreshed since sends the same form again.
    status, page = press(operator, url, id=first)
    assert status == 200
    assert "No command was issued: this form was sent at" in page
    assert "its command is APPLIED. To issue another one, press the button again." in page
    assert commands() == [("RESUME_TASK", "APPLIED")]
    status, page = press(operator, url)
    assert "waiting for an instance" in page and "APPLIED" not in page


def test_a_refresh_between_two_clicks_keeps_the_command_id(
    flights: Story, operator: Client
) -> None:
    task = flights.pauses("JFK").digest

    def offered() -> str:
        page = operator.get(reverse("task", args=[task]), headers=HTMX).content.decode()
        return page.partition('name="id" value="')[2][:36]

    first = offered()
    flights.skips("JFK", 3)
    assert offered() == first
    UUID(first)
    press(operator, reverse("resume", args=[task]), id=first)
    flights.resumes("JFK", UUID(first))
    flights.pauses("JFK")
    assert offered() != first


def test_skip_shows_the_record_and_needs_a_reason(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK", held=9).digest
    dialog = operator.get(reverse("skip-dialog", args=[task])).content.decode()
    assert "is not processed" in dialog and "N384HA" in dialog
    status, again = press(operator, reverse("skip", args=[task]), reason="  ")
    assert status == 400 and "A reason is required" in again
    assert commands() == []
    assert press(operator, reverse("skip", args=[task]), reason="a typo")[0] == 200
    assert queries.commands().rows[0].reason == "a typo"


def test_a_command_that_the_state_forbids_is_refused_and_in_the_log(
    flights: Story, operator: Client
) -> None:
    flights.skips("EWR", 2)
    task = flights.task("EWR").digest
    status, page = press(operator, reverse("resume", args=[task]))
    assert status == 409
    assert "only a PAUSED task can resume; delays_EWR is RUNNING" in page
    assert commands() == [("RESUME_TASK", "REFUSED")]


def test_a_disabled_button_has_its_reason(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 2)
    url = reverse("task", args=[flights.task("EWR").digest])
    page = operator.get(url).content.decode()
    assert 'disabled title="only a PAUSED task can resume; delays_EWR is RUNNING"' in page


def test_a_viewer_sees_disabled_buttons(flights: Story, viewer: Client) -> None:
    task = flights.pauses("JFK").digest
    page = viewer.get(reverse("task", args=[task])).content.decode()
    assert page.count('disabled title="requires the role operator"') == 4
    assert "Requires the role operator." in page and "Not now" not in page
    for name, argument in [
        ("resume", task),
        ("skip", task),
        ("resume-at", task),
        ("pause", task),
        ("shut-down", "flights"),
        ("start", "flights"),
        ("set-policy", "flights"),
    ]:
        form = {"reason": "because", "name": "flights"}
        assert press(viewer, reverse(name, args=[argument]), **form)[0] == 403
    for name, argument in [
        ("skip-dialog", task),
        ("resume-at-dialog", task),
        ("shut-down-dialog", "flights"),
        ("start-dialog", "flights"),
        ("policy-dialog", "flights"),
    ]:
        assert viewer.get(reverse(name, args=[argument])).status_code == 403
    assert commands() == []


def test_resume_at_needs_a_position_of_a_held_record_and_a_reason(
    flights: Story, operator: Client
) -> None:
    held = flights.pauses("JFK", held=12)
    position = queries.task(held.digest).state.position or 0
    dialog = operator.get(reverse("resume-at-dialog", args=[held.digest])).content.decode()
    assert "holds 12 records" in dialog
    url = reverse("resume-at", args=[held.digest])
    for form in ({"position": "soon", "reason": "x"}, {"position": position + 3, "reason": " "}):
        assert press(operator, url, **form)[0] == 400
    assert commands() == []
    status, page = press(operator, url, position=position - 1, reason="a bad hour")
    assert status == 409 and "is before it" in page
    assert press(operator, url, position=f"{position + 3:,}", reason="a bad hour")[0] == 200
    command = queries.commands().rows[0]
    assert (command.kind, command.target) == (CommandKind.RESUME_AT, position + 3)


def test_the_record_that_stopped_a_task_is_edited_and_reviewed(
    flights: Story, operator: Client
) -> None:
    held = flights.pauses("JFK", held=3, record=RECORD | {"notes": "long…[cut]", "passenger": {}})
    ask, review, url = (
        reverse(name, args=[held.digest]) for name in ("mend-dialog", "review-mend", "mend")
    )
    assert ask in operator.get(reverse("task", args=[held.digest])).content.decode()
    text = operator.get(ask).content.decode()
    assert "&quot;origin&quot;: &quot;JFK&quot;" in text and "Masked fields" in text
    record = RECORD | {"notes": "long…[cut]", "passenger": {}}
    for changed, message in (
        (record, "No column is changed"),
        (record | {"more": 1}, "a JSON object with the columns"),
        (record | {"notes": "short"}, "notes: the page does not have the whole value"),
        (record | {"passenger": None}, "passenger: the page does not have the whole value"),
    ):
        response = operator.post(review, {"text": json.dumps(changed)})
        assert response.status_code == 400 and message in response.content.decode()
    response = operator.post(review, {"text": json.dumps(record | {"dep_delay": 9})})
    text = response.content.decode()
    assert response.status_code == 200 and "<del>1301</del><ins>9</ins>" in text
    patch = '[{"op":"replace","path":"/dep_delay","value":9}]'
    assert f'name="patch" value="{escape(patch)}"' in text
    assert commands() == []
    again = operator.get(ask, {"patch": patch}).content.decode()
    assert "&quot;dep_delay&quot;: 9" in again and 'value="9"' in again
    assert 'value="1301"' in operator.get(ask, {"patch": "no patch"}).content.decode()
    other = operator.get(ask, {"patch": '[{"op":"replace","path":"/dep_delay","value":[1]}]'})
    assert "data-form-of" not in other.content.decode()

    assert press(operator, url, patch=patch, reason=" ")[0] == 400
    assert press(operator, url, patch="[]", reason="a typo")[0] == 400
    assert press(operator, url, patch=patch, reason="a typo")[0] == 200
    command = queries.commands().rows[0]
    assert (command.kind, command.patch) == (CommandKind.EDIT_RECORD, patch)
    page = operator.get(reverse("command", args=[command.id])).content.decode()
    assert escape(patch) in page
    assert press(operator, url, patch=patch, reason="a typo")[0] == 409


def test_an_edited_record_is_tested_before_it_is_sent(flights: Story, operator: Client) -> None:
    held = flights.pauses("JFK")
    url = reverse("test-record", args=[held.digest])
    record = json.dumps(RECORD | {"dep_delay": 9})
    review = reverse("review-mend", args=[held.digest])
    text = operator.post(review, {"text": record}).content.decode()
    assert f'hx-post="{url}"' in text and "A test is not possible" not in text
    patch = '[{"op":"replace","path":"/dep_delay","value":9}]'

    def shown() -> str:
        return operator.get(result).content.decode()

    status, text = press(operator, url, patch=patch)
    command = queries.commands().rows[0]
    result = reverse("test-result", args=[command.id])
    assert (command.kind, command.patch, command.reason) == ("TEST_RECORD", patch, None)
    assert status == 200 and f'hx-get="{result}"' in text and "waits for the instance" in text
    # A second click shows the same test; another change waits for its end.
    assert press(operator, url, patch=patch) == (200, text)
    status, other = press(operator, url, patch=patch.replace("9", "8"))
    assert status == 409 and "Not tested: TEST_RECORD by ana is already in progress" in other
    # Neither the page nor the other commands wait for a test.
    page = operator.get(reverse("task", args=[held.digest])).content.decode()
    assert 'id="resume"' in page and "Last command" not in page
    flights.fetches(command.id)
    assert "runs the steps after its current micro-batch" in shown()
    flights.tests(command.id, rows=2)
    assert "Passed" in shown() and "2 rows" in shown() and "hx-get" not in shown()
    for failure, text in ((TYPO, "Failed with the same cause at"), (NA, "Failed at")):
        press(operator, url, patch=patch)
        command = queries.commands().rows[0]
        result = reverse("test-result", args=[command.id])
        flights.tests(command.id, failure=failure)
        assert text in shown() and escape(failure.message) in shown()
    press(operator, url, patch=patch)
    command = queries.commands().rows[0]
    flights.report(CommandRefused(command=command.id, reason="<i>away</i>"), caused_by=command.id)
    text = operator.get(reverse("test-result", args=[command.id])).content.decode()
    assert "Not tested: &lt;i&gt;away&lt;/i&gt;." in text
    assert press(operator, url, patch="[]")[0] == 400
    assert queries.task(held.digest).last_command is None


def test_a_test_that_is_not_possible_is_not_offered(flights: Story, operator: Client) -> None:
    held = flights.pauses("JFK")
    review = reverse("review-mend", args=[held.digest])
    flights.stops()
    text = operator.post(review, {"text": json.dumps(RECORD | {"dep_delay": 9})}).content.decode()
    assert "A test is not possible: no instance runs delays, and only a running pipeline" in text
    assert 'disabled aria-describedby="why-no-test"' in text
    status, text = press(operator, reverse("test-record", args=[held.digest]), patch="[1]")
    assert status == 400
    patch = '[{"op":"replace","path":"/dep_delay","value":9}]'
    status, text = press(operator, reverse("test-record", args=[held.digest]), patch=patch)
    assert status == 409 and "Not tested: no instance runs delays" in text


def test_a_running_task_is_paused_until_a_time(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 3)
    task = flights.task("EWR").digest
    page = operator.get(reverse("task", args=[task])).content.decode()
    assert 'id="pause"' in page
    dialog = operator.get(reverse("pause-dialog", args=[task])).content.decode()
    assert all(f'value="{end}"' in dialog for end in ("never", "5m", "1h", "8h", "until"))
    for form in ({"end": "until", "until": "2013-01-01T00:00"}, {"end": "soon"}, {"end": "until"}):
        status, page = press(operator, reverse("pause", args=[task]), **form)
        assert (status, "is not allowed" in page) == (400, True)
    assert commands() == []
    assert press(operator, reverse("pause", args=[task]), end="1h")[0] == 200
    assert commands() == [("PAUSE_TASK", "ISSUED")]
    command = queries.commands().rows[0]
    assert command.paused_until == command.issued_at + timedelta(hours=1)
    flights.pauses_by_hand("EWR", command.id)
    assert "the pause ends" in operator.get(reverse("task", args=[task])).content.decode()
    paused = flights.pauses("JFK").digest
    assert 'id="pause"' not in operator.get(reverse("task", args=[paused])).content.decode()


def test_a_shutdown_in_progress_is_forced(flights: Story, operator: Client) -> None:
    form = {"name": "flights", "reason": "night"}
    url, page = reverse("shut-down", args=["flights"]), reverse("application", args=["flights"])
    assert 'id="force-shutdown"' not in operator.get(page).content.decode()
    assert press(operator, url, **form)[0] == 200
    graceful = queries.commands().rows[0]
    for place in (page, reverse("command", args=[graceful.id])):
        assert 'id="force-shutdown"' in operator.get(place).content.decode()
    dialog = operator.get(f"{reverse('shut-down-dialog', args=['flights'])}?force=1")
    assert 'name="force" value="1" checked' in dialog.content.decode()
    assert press(operator, url, **form)[0] == 409
    assert press(operator, url, **form, force="1")[0] == 200
    status, shown = press(operator, url, **form, force="1")
    assert (status, "is still being shut down by ana" in shown) == (409, True)
    assert commands()[1:3] == [
        ("SHUT_DOWN_APPLICATION", "ISSUED"),
        ("SHUT_DOWN_APPLICATION", "REFUSED"),
    ]
    assert queries.command(graceful.id).status is CommandStatus.CANCELLED
    flights.stops(command=queries.commands().rows[1].id)
    assert 'id="force-shutdown"' not in operator.get(page).content.decode()


def test_an_instance_is_shut_down_and_its_application_stays_open(
    flights: Story, operator: Client
) -> None:
    about = ["flights", flights.instance]
    url = reverse("shut-down-instance", args=about)
    for place in (f"{reverse('application', args=['flights'])}?tab=instances", "/instances"):
        dialog = reverse("shut-down-instance-dialog", args=about)
        assert f'hx-get="{dialog}"' in operator.get(place).content.decode()
    assert "delays" in operator.get(dialog).content.decode()
    assert press(operator, url)[0] == 400
    assert press(operator, url, reason="a new host")[0] == 200
    status, shown = press(operator, url, reason="a new host")
    assert (status, "is still being shut down by ana" in shown) == (409, True)
    command = queries.commands().rows[1]
    assert (
        'id="force-shutdown"'
        in operator.get(reverse("command", args=[command.id])).content.decode()
    )
    flights.stops(command=command.id)
    assert queries.command(command.id).status is CommandStatus.APPLIED
    assert queries.application("flights").state.status is ApplicationStatus.OPEN
    audit = operator.get(reverse("audit")).content.decode()
    assert f"instance {flights.instance}" in audit and "shut down instance: a new host" in audit


def test_a_pipeline_is_restarted_with_a_reason(flights: Story, operator: Client) -> None:
    url, page = reverse("restart-pipeline", args=["flights"]), "/applications/flights"
    dialog = operator.get(f"{reverse('restart-pipeline-dialog', args=['flights'])}?pipeline=delays")
    assert "run 1, RUNNING" in dialog.content.decode()
    assert press(operator, url, pipeline="delays")[0] == 400
    assert press(operator, url, pipeline="nope", reason="stuck")[0] == 409
    assert press(operator, url, pipeline="delays", reason="stuck")[0] == 200
    shown = operator.get(page).content.decode()
    assert "RESTART_PIPELINE by ana is already in progress for delays" in shown
    command = queries.commands().rows[0]
    assert (command.kind, command.pipeline) == (CommandKind.RESTART_PIPELINE, "delays")
    shown = operator.get(reverse("audit")).content.decode()
    assert "restart pipeline delays: stuck" in shown


def test_a_task_that_died_alone_is_restarted_by_one_click(flights: Story, operator: Client) -> None:
    task = flights.dies_alone("EWR").digest
    page = operator.get(reverse("task", args=[task])).content.decode()
    assert 'id="restart"' in page
    assert press(operator, reverse("restart", args=[task]))[0] == 200
    assert commands() == [("RESTART_TASK", "ISSUED")]
    paused = flights.pauses("JFK").digest
    assert 'id="restart"' not in operator.get(reverse("task", args=[paused])).content.decode()


def test_shut_down_needs_the_name_and_a_reason(flights: Story, operator: Client) -> None:
    flights.pauses("JFK", held=12)
    dialog = operator.get(reverse("shut-down-dialog", args=["flights"])).content.decode()
    assert "1 instance" in dialog and "spark-driver-0" in dialog and "12 held records" in dialog
    url = reverse("shut-down", args=["flights"])
    assert press(operator, url, name="flight", reason="maintenance")[0] == 400
    assert press(operator, url, name="flights", reason="")[0] == 400
    assert commands() == []
    status, page = press(operator, url, name="flights", reason="maintenance")
    assert status == 200 and "LATCHED" in page
    command = queries.commands().rows[0]
    flights.fetches(command.id)
    flights.stops(command=command.id)
    assert queries.command(command.id).status is CommandStatus.APPLIED


def test_a_pending_resume_does_not_hide_the_shutdown(flights: Story, operator: Client) -> None:
    actions.resume_task(flights.pauses("JFK").digest, actor="ana")
    page = operator.get(reverse("application", args=["flights"])).content.decode()
    assert 'id="shut-down" hx-get="/applications/flights/shut-down/ask"' in page


def test_start_opens_an_application_that_was_shut_down(flights: Story, operator: Client) -> None:
    flights.stops()
    actions.shut_down_application("flights", actor="ana", reason="maintenance")
    dialog = operator.get(reverse("start-dialog", args=["flights"])).content.decode()
    assert "does not start a driver" in dialog
    assert press(operator, reverse("start", args=["flights"]))[0] == 200
    assert queries.application("flights").state.status is ApplicationStatus.OPEN
    assert press(operator, reverse("start", args=["flights"]))[0] == 409


def test_actions_need_post_a_token_and_a_command_id(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    url = reverse("resume", args=[task])
    assert operator.get(url).status_code == 405
    assert press(operator, url, id="no id")[0] == 400
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(make_user("dora", "operator"))
    assert strict.post(url, {"id": str(uuid4())}).status_code == 403
    assert commands() == []


def test_without_htmx_the_response_redirects_to_the_command(
    flights: Story, operator: Client
) -> None:
    command = str(uuid4())
    url = reverse("resume", args=[flights.pauses("JFK").digest])
    response = operator.post(url, {"id": command})
    assert response.headers["Location"] == reverse("command", args=[command])


@pytest.mark.usefixtures("fresh_database")
def test_a_superuser_is_an_operator(flights: Story) -> None:
    user = make_superuser("root")
    url = reverse("resume", args=[flights.pauses("JFK").digest])
    assert press(logged_in(user), url)[0] == 200


STAGE = {"pipeline": "delays", "stage": "process:validate"}


def test_a_policy_is_set_for_a_stage_and_removed(flights: Story, operator: Client) -> None:
    own, url = reverse("application", args=["flights"]), reverse("set-policy", args=["flights"])
    ask = reverse("policy-dialog", args=["flights"])
    dialog = operator.get(ask, STAGE).content.decode()
    assert "Commands are applied by spark-driver-0" in dialog
    assert 'value="PAUSE"' in dialog and 'value="RETRY"' not in dialog
    assert "As in the code" not in dialog
    assert 'value="RETRY"' in operator.get(ask, STAGE | {"stage": "deserialize"}).content.decode()
    for form in ({"answer": "SKIP", "reason": "x"}, {"answer": "PAUSE", "reason": " "}):
        assert press(operator, url, **STAGE, **form)[0] == 400
    assert commands() == []
    assert press(operator, url, **STAGE, answer="PAUSE", reason="a <new> carrier")[0] == 200
    command = queries.commands().rows[0]
    assert (command.kind, command.stage, command.answer) == (
        CommandKind.SET_POLICY,
        "process:validate",
        "PAUSE",
    )
    flights.fetches(command.id)
    flights.applies_policy(command.id)
    page = operator.get(own, {"tab": "policy"}).content.decode()
    assert "command by <b>ana</b>" in page and "“a &lt;new&gt; carrier”" in page
    assert "in the code: HANDLER" in page
    shown = operator.get(reverse("command", args=[command.id])).content.decode()
    assert "process:validate" in shown and "APPLIED" in shown
    assert press(operator, url, **STAGE, answer="", reason="it is over")[0] == 200
    back = queries.commands().rows[0]
    assert back.answer is None
    flights.applies_policy(back.id)
    assert "command by" not in operator.get(own, {"tab": "policy"}).content.decode()


def test_a_policy_that_the_state_forbids_is_refused(flights: Story, operator: Client) -> None:
    url = reverse("set-policy", args=["flights"])
    wrong = {"pipeline": "delays", "stage": "process:nope", "answer": "FAIL", "reason": "x"}
    status, page = press(operator, url, **wrong)
    assert status == 409 and "delays has no stage process:nope" in page
    assert commands() == [("SET_POLICY", "REFUSED")]
    flights.stops()
    after = operator.get(reverse("application", args=["flights"]), {"tab": "policy"})
    assert "Set…" not in after.content.decode()
    ask = operator.get(reverse("policy-dialog", args=["flights"]), STAGE)
    assert "delays does not run" in ask.content.decode()


PROMISES = {
    "STORED": "becomes a dead letter in /data/dlq/flights, with your reason.",
    "LOST": "for 30 days after its failure: this pipeline stores no dead letters",
    "UNKNOWN": "becomes a dead letter if the pipeline stores dead letters. If not, ",
}


@pytest.mark.parametrize("skipped", POLICIES)
def test_a_skip_promises_no_dead_letter_that_the_pipeline_does_not_store(
    skipped: str, db: None, redis: Redis, operator: Client
) -> None:
    story = Story()
    story.starts(policy=POLICIES[skipped])
    tasks = {name: story.pauses(name, held=2).digest for name in ("skip", "resume-at")}
    for name, task in tasks.items():
        dialog = operator.get(reverse(f"{name}-dialog", args=[task])).content.decode()
        of_one = dialog.replace("become dead letters", "becomes a dead letter")
        of_one = of_one.replace(". The others are lost: this", ": this")
        assert [each for each, text in PROMISES.items() if text in of_one] == [skipped]
        assert ('name="lost"' in dialog) == (skipped == "LOST")
        form = {"reason": "a typo", "position": 151_974}
        if skipped == "LOST":
            _, again = press(operator, reverse(name, args=[task]), **form)
            assert "Confirm the loss of skipped records." in again
        assert len(commands()) == list(tasks).index(name)
        press(operator, reverse(name, args=[task]), **form | {"lost": "on"})
    assert sorted(kind for kind, _ in commands()) == ["RESUME_AT", "SKIP_RECORD"]


@pytest.mark.parametrize("skipped", POLICIES)
def test_a_rollout_names_the_loss_of_skipped_records(
    skipped: str, db: None, redis: Redis, operator: Client
) -> None:
    story = Story()
    story.starts(policy=POLICIES[skipped])
    story.pauses("JFK")
    dialog = operator.get(f"{reverse('rollout-dialog')}?application=flights").content.decode()
    assert ("stores no dead letters" in dialog) == ('name="lost"' in dialog) == (skipped == "LOST")
    assert ("if the pipeline stores" in dialog) == (skipped == "UNKNOWN")
    assert ("in /data/dlq/flights" in dialog) == (skipped == "STORED")
    assert "Each changed record is processed in place of the failed one" in dialog
    form = {
        "application": "flights", "kind": "SKIP_RECORDS", "reason": "a typo",
        "observe_seconds": 0, "tasks_per_minute": 60,
    }  # fmt: skip
    if skipped == "LOST":
        _, again = press(operator, reverse("start-rollout"), **form)
        assert "Confirm the loss of skipped records." in again and commands() == []
    press(operator, reverse("start-rollout"), **form | {"lost": "on"})
    assert ("SKIP_RECORDS", "ISSUED") in commands()


def test_a_pipeline_is_paused_and_shown_until_it_is_resumed(
    flights: Story, operator: Client
) -> None:
    url, page = reverse("pause-pipeline", args=["flights"]), "/applications/flights"
    assert press(operator, url, pipeline="delays", end="until", until="2020-01-01T00:00")[0] == 400
    assert press(operator, url, pipeline="delays", end="1h", reason="a migration")[0] == 200
    command = queries.commands().rows[0]
    assert (command.kind, command.pipeline) == (CommandKind.PAUSE_PIPELINE, "delays")
    assert command.paused_until == command.issued_at + timedelta(hours=1)
    shown = operator.get(page).content.decode()
    assert "PAUSE_PIPELINE by ana is already in progress for delays" in shown

    flights.pauses_pipeline(command.id)
    shown = operator.get(page).content.decode()
    assert "Run PAUSED" in shown and "PAUSED by ana" in shown and "“a migration”" in shown
    assert "data-resume-pipeline" in shown and "Change pause…" in shown
    dialog = operator.get("/applications/flights/pause-pipeline/ask?pipeline=delays")
    assert "PAUSED by ana" in dialog.content.decode()
    assert "Run PAUSED" in operator.get(f"{page}?tab=policy").content.decode()
    assert "paused by ana until" in operator.get(reverse("overview")).content.decode()
    assert press(operator, url, pipeline="delays", end="never")[0] == 200
    flights.pauses_pipeline(queries.commands().rows[0].id)
    assert (
        press(operator, reverse("resume-pipeline", args=["flights"]), pipeline="delays")[0] == 200
    )

    flights.stops()
    shown = operator.get(page).content.decode()
    assert "Run STOPPED" in shown and "The next run starts PAUSED by ana" in shown


def test_a_key_that_has_not_failed_is_paused(flights: Story, operator: Client) -> None:
    url = reverse("pause-key", args=["flights"])
    status, body = press(operator, url, pipeline="delays", key="é" * 300)
    assert status == 400
    assert "a text of at most 512 bytes" in body
    assert press(operator, url, pipeline="delay", key="cust-001")[0] == 400
    assert press(operator, url, pipeline="delays", key="cust-001", end="5m")[0] == 200
    command = queries.commands().rows[0]
    assert (command.task, command.kind) == (flights.task("cust-001"), CommandKind.PAUSE_TASK)
    assert command.paused_until == command.issued_at + timedelta(minutes=5)
