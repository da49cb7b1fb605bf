"""Every action of a user: its control, its form, and its REST endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from inspect import iscoroutinefunction
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import urlencode
from uuid import uuid4

import msgspec
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page

from arrester.agents.failures.payload import Redaction, Reveal
from arrester.controlplane import actions, models, queries, signing
from arrester.controlplane.access.login_attempts import PER_NAME_AND_ADDRESS
from arrester.controlplane.access.roles import Role
from arrester.controlplane.alerts import configuration, subscriptions
from arrester.controlplane.store import stream_entry
from arrester.domain.events import Failure, PipelinePaused, RecordFailed
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from arrester.domain.wire.signed_messages import parse_keys
from tests.dashboard.story import NA, RECORD, TYPO, Story, failure

#: The fields of forms that have another name in REST.
NAMES = {"position": "resume_position"}
FULL = failure("produce", "app.Full", "no room")
BROKEN = failure("process:b", "app.Broken", "broken")
LATE = failure("process:l", "app.Late", "too late")
EMPTY = failure("process:e", "app.Empty", "nothing in it")

#: A click, or text typed into a field: of the dialog by its label, or of the page.
Step = tuple[str, str] | tuple[str, str, str]


class UserAction(NamedTuple):
    """An action of a user."""

    #: The name of the form's URL.
    name: str
    page: str
    #: The URL of the enabled control: the form itself, or its dialog.
    offered: str
    url: str
    form: dict[str, str]
    steps: Sequence[Step]
    #: The endpoint and its body; None: pages only.
    rest: tuple[str, dict[str, Any]] | None
    least: Role = Role.OPERATOR

    def is_allowed(self, role: Role) -> bool:
        """Return whether a role may perform it."""
        return list(Role).index(role) >= list(Role).index(self.least)

    def ask(self, client: Client) -> int:
        """Perform it by REST; return the status."""
        assert self.rest is not None
        path, body = self.rest
        return client.post(path, body, content_type="application/json").status_code

    def press(self, page: Page) -> None:
        """Perform it with the mouse."""
        page.goto(self.page)
        fields = page.locator("dialog[open]" if "/ask" in self.offered else "main")
        for step in self.steps:
            match step:
                case ("click", where):
                    page.locator(where).click()
                case ("fill", label, text):
                    fields.get_by_label(label).fill(text)
                case ("type", where, text):
                    page.locator(where).fill(text)
                case _:
                    raise AssertionError(step)


def user_actions(story: Story) -> list[UserAction]:
    """Create the data of each action, and return all of them; no action affects another."""
    return [
        *_of_tasks(story),
        *_of_applications(),
        *_of_pipelines(),
        *_of_groups(story),
        *_of_the_rest(story),
    ]


def _of_tasks(story: Story) -> list[UserAction]:
    resume, skip = story.pauses("resume"), story.pauses("skip")
    at, noted = story.pauses("at", held=9), story.pauses("noted")
    mend, tested = story.pauses("mend"), story.pauses("tested")
    patch = [{"op": "replace", "path": "/value", "value": "2013,1,1,9"}]
    story.skips("pause", 3)
    story.skips("spoilt", 1)
    spoilt = story.task("spoilt").digest
    spoilt_record = queries.dead_letters(queries.DeadLetterFilter(task=spoilt)).rows[0].id
    pause, restart = story.task("pause"), story.dies_alone("restart")
    renamed = Story(pipeline="renamed", checkpoint=str(uuid4()))
    renamed.starts()
    gone, gone_too = renamed.pauses("gone"), renamed.pauses("gone-too")
    renamed.stops()
    reason = {"reason": "so it is"}
    confirm = ("click", "dialog .primary")
    return [
        _task(
            "dismiss-task",
            gone.digest,
            [("click", "#dismiss-task"), ("fill", "Reason", "so it is"), confirm],
            kind="DISMISS_TASK",
            more=reason,
        ),
        _task("resume", resume.digest, [("click", "#resume")], kind="RESUME_TASK"),
        _task(
            "skip",
            skip.digest,
            [("click", "#skip"), ("fill", "Reason", "so it is"), confirm],
            kind="SKIP_RECORD",
            more=reason,
        ),
        _task(
            "resume-at",
            at.digest,
            [
                ("click", "#resume-at"),
                ("fill", "Position", "151975"),
                ("fill", "Reason", "so it is"),
                confirm,
            ],
            kind="RESUME_AT",
            more=reason | {"position": "151975"},
        ),
        UserAction(
            name="test-dead-letter",
            page=reverse("dead-letter", args=["flights", spoilt_record]),
            offered=f"{reverse('redrive-dialog')}?record=flights/{spoilt_record}",
            url=reverse("test-dead-letter", args=["flights", spoilt_record]),
            form={"patch": ""},
            steps=[("click", "#redrive"), ("click", "#test-record")],
            rest=(f"/api/v1/dead-letters/flights/{spoilt_record}/test", {}),
        ),
        UserAction(
            name="test-record",
            page=reverse("task", args=[tested.digest]),
            offered=reverse("mend-dialog", args=[tested.digest]),
            url=reverse("test-record", args=[tested.digest]),
            form={"patch": json.dumps(patch)},
            steps=[
                ("click", "#mend"),
                ("click", "dialog [data-choose=json]"),
                ("fill", "Record", json.dumps(RECORD | {"value": "2013,1,1,9"})),
                ("click", "dialog [type=submit]"),
                ("click", "#test-record"),
            ],
            rest=(
                "/api/v1/commands",
                {"kind": "TEST_RECORD", "task": tested.digest, "patch": patch},
            ),
        ),
        UserAction(
            name="mend",
            page=reverse("task", args=[mend.digest]),
            offered=reverse("mend-dialog", args=[mend.digest]),
            url=reverse("mend", args=[mend.digest]),
            form={"id": str(uuid4()), "patch": json.dumps(patch)} | reason,
            steps=[
                ("click", "#mend"),
                ("click", "dialog [data-choose=json]"),
                ("fill", "Record", json.dumps(RECORD | {"value": "2013,1,1,9"})),
                ("click", "dialog [type=submit]"),
                ("fill", "Reason", "so it is"),
                confirm,
            ],
            rest=(
                "/api/v1/commands",
                {"kind": "EDIT_RECORD", "task": mend.digest, "patch": patch} | reason,
            ),
        ),
        UserAction(
            name="dismiss-many",
            page=f"{reverse('tasks')}?pipeline=renamed&key=gone-too",
            offered=reverse("dismiss-many-dialog"),
            url=reverse("dismiss-many"),
            form={"id": str(uuid4()), "task": gone_too.digest} | reason,
            steps=[
                ("click", f"#task-{gone_too.digest} [data-select]"),
                ("click", "#dismiss-many"),
                ("fill", "Reason", "so it is"),
                confirm,
            ],
            rest=("/api/v1/dismiss", {"tasks": [gone_too.digest], "reason": "so it is"}),
        ),
        UserAction(
            name="discard",
            page=f"{reverse('dead-letters')}?task={spoilt}",
            offered=reverse("discard-dialog"),
            url=reverse("discard"),
            form={"id": str(uuid4()), "record": f"flights/{spoilt_record}"} | reason,
            steps=[
                ("click", f"#letter-flights-{spoilt_record} [data-select]"),
                ("click", "#discard-selected"),
                ("fill", "Reason", "so it is"),
                ("click", "dialog .danger"),
            ],
            rest=(
                "/api/v1/dead-letters/discard",
                {"application": "flights", "ids": [spoilt_record], "reason": "so it is"},
            ),
        ),
        _task("pause", pause.digest, [("click", "#pause"), confirm], kind="PAUSE_TASK"),
        _task("restart", restart.digest, [("click", "#restart")], kind="RESTART_TASK"),
        _note(
            "note-on-task",
            reverse("task", args=[noted.digest]),
            reverse("note-on-task", args=[noted.digest]),
            {"task": noted.digest},
            before=[("click", "text=Add a note")],
        ),
    ]


def _task(
    name: str, digest: str, steps: list[Step], *, kind: str, more: dict[str, str] | None = None
) -> UserAction:
    url = reverse(name, args=[digest])
    asks = name in ("skip", "resume-at", "pause", "dismiss-task")
    return UserAction(
        name=name,
        page=reverse("task", args=[digest]),
        offered=reverse(f"{name}-dialog", args=[digest]) if asks else url,
        url=url,
        form={"id": str(uuid4())} | (more or {}),
        steps=steps,
        rest=(
            "/api/v1/commands",
            {"kind": kind, "task": digest}
            | {
                NAMES.get(name, name): int(value) if value.isdigit() else value
                for name, value in (more or {}).items()
            },
        ),
    )


def _of_applications() -> list[UserAction]:
    names = ("many", "rolled", "ends", "ended", "ruled", "renewed", "two")
    many, rolled, ends, ended, ruled, renewed, two = (Story(application=name) for name in names)
    for each in (many, rolled, ends, ended, ruled, renewed, two):
        each.starts(host=each.application)
    tasks = [many.pauses(key).digest for key in ("a", "b")]
    rolled.pauses("a")
    latched = actions.shut_down_application("ended", actor="ada", reason="to be started").id
    ended.stops(command=latched)
    why = {"id": str(uuid4()), "reason": "so it is"}
    page = {name: reverse("application", args=[name]) for name in names}
    rule = {"pipeline": "delays", "stage": "process:validate", "answer": "PAUSE"}
    asked = urlencode({name: rule[name] for name in ("pipeline", "stage")})
    return [
        UserAction(
            name="resume-many",
            page=page["many"],
            offered=f"{reverse('resume-many-dialog')}?application=many",
            url=reverse("resume-many"),
            form={"id": str(uuid4()), "application": "many", "task": tasks[0]},
            steps=[("click", "#resume-many"), ("click", "dialog .primary")],
            rest=("/api/v1/resume", {"application": "many"}),
        ),
        UserAction(
            name="start-rollout",
            page=page["rolled"],
            offered=f"{reverse('rollout-dialog')}?application=rolled",
            url=reverse("start-rollout"),
            form={
                "id": str(uuid4()),
                "application": "rolled",
                "kind": "RESUME_TASKS",
                "observe_seconds": "0",
                "tasks_per_minute": "600",
            },
            steps=[("click", "#rollout"), ("click", "dialog .primary")],
            rest=("/api/v1/commands", {"kind": "RESUME_TASKS", "application": "rolled"}),
        ),
        UserAction(
            name="shut-down",
            page=page["ends"],
            offered=reverse("shut-down-dialog", args=["ends"]),
            url=reverse("shut-down", args=["ends"]),
            form=why | {"name": "ends"},
            steps=[
                ("click", "#shut-down"),
                ("fill", "Type ends to confirm", "ends"),
                ("fill", "Reason", "so it is"),
                ("click", "dialog .danger"),
            ],
            rest=(
                "/api/v1/commands",
                {"kind": "SHUT_DOWN_APPLICATION", "application": "ends", "reason": "so it is"},
            ),
        ),
        UserAction(
            name="shut-down-instance",
            page=f"{page['two']}?tab=instances",
            offered=reverse("shut-down-instance-dialog", args=["two", two.instance]),
            url=reverse("shut-down-instance", args=["two", two.instance]),
            form=why,
            steps=[
                ("click", "[data-shut-down-instance]"),
                ("fill", "Reason", "so it is"),
                ("click", "dialog .danger"),
            ],
            rest=(
                "/api/v1/commands",
                {
                    "kind": "SHUT_DOWN_INSTANCE",
                    "application": "two",
                    "instance": str(two.instance),
                    "reason": "so it is",
                },
            ),
        ),
        UserAction(
            name="restart-pipeline",
            page=page["renewed"],
            offered=f"{reverse('restart-pipeline-dialog', args=['renewed'])}?pipeline=delays",
            url=reverse("restart-pipeline", args=["renewed"]),
            form=why | {"pipeline": "delays"},
            steps=[
                ("click", "[data-restart]"),
                ("fill", "Reason", "so it is"),
                ("click", "dialog .primary"),
            ],
            rest=(
                "/api/v1/commands",
                {
                    "kind": "RESTART_PIPELINE",
                    "application": "renewed",
                    "pipeline": "delays",
                    "reason": "so it is",
                },
            ),
        ),
        UserAction(
            name="set-policy",
            page=f"{page['ruled']}?tab=policy",
            offered=f"{reverse('policy-dialog', args=['ruled'])}?{asked}",
            url=reverse("set-policy", args=["ruled"]),
            form=why | rule,
            steps=[
                ("click", "[aria-label^='Set the answer of process:validate']"),
                ("click", "dialog [value=PAUSE]"),
                ("fill", "Reason", "so it is"),
                ("click", "dialog .primary"),
            ],
            rest=(
                "/api/v1/commands",
                rule | {"kind": "SET_POLICY", "application": "ruled", "reason": "so it is"},
            ),
        ),
        UserAction(
            name="start",
            page=page["ended"],
            offered=reverse("start-dialog", args=["ended"]),
            url=reverse("start", args=["ended"]),
            form=why,
            steps=[("click", "#start"), ("click", "dialog .primary")],
            rest=("/api/v1/commands", {"kind": "START_APPLICATION", "application": "ended"}),
        ),
    ]


def _of_pipelines() -> list[UserAction]:
    flowing, waiting, keyed = (Story(application=name) for name in ("flowing", "waiting", "keyed"))
    for each in (flowing, waiting, keyed):
        each.starts(host=each.application)
    waiting.report(PipelinePaused(since=timezone.now(), actor="ana"))
    return [
        *(
            UserAction(
                name=f"{act}-pipeline",
                page=reverse("application", args=[application]),
                offered=f"{reverse(f'{act}-pipeline-dialog', args=[application])}?pipeline=delays",
                url=reverse(f"{act}-pipeline", args=[application]),
                form={"id": str(uuid4()), "pipeline": "delays"},
                steps=[("click", f"[data-{act}-pipeline]"), ("click", "dialog .primary")],
                rest=(
                    "/api/v1/commands",
                    {
                        "kind": f"{act.upper()}_PIPELINE",
                        "application": application,
                        "pipeline": "delays",
                    },
                ),
            )
            for act, application in (("pause", "flowing"), ("resume", "waiting"))
        ),
        UserAction(
            name="pause-key",
            page=reverse("application", args=["keyed"]),
            offered=f"{reverse('pause-key-dialog', args=['keyed'])}?pipeline=delays",
            url=reverse("pause-key", args=["keyed"]),
            form={"id": str(uuid4()), "pipeline": "delays", "key": "cust-001", "end": "1h"},
            steps=[
                ("click", "[data-pause-key]"),
                ("fill", "Key", "cust-001"),
                ("click", "dialog .primary"),
            ],
            rest=(
                "/api/v1/commands",
                {
                    "kind": "PAUSE_TASK",
                    "application": "keyed",
                    "pipeline": "delays",
                    "key": "cust-001",
                },
            ),
        ),
    ]


def _of_groups(story: Story) -> list[UserAction]:
    for cause in (FULL, BROKEN, LATE, EMPTY):
        story.pauses(cause.exception_class, cause=cause)
    requests = ((BROKEN, GroupAct.RESOLVE, None), (LATE, GroupAct.MUTE, 10**6))
    for cause, act, failures in requests:
        requested = GroupRequest(
            id=uuid7(story.now),
            act=act,
            fingerprint=cause.fingerprint,
            actor="ada",
            failures=failures,
            period_seconds=3600 if failures else None,
        )
        actions.act_on_group("flights", requested)
    muted = {"act": "MUTE", "failures": 100, "period_seconds": 3600}
    return [
        _group("resolve", FULL, [("click", "#resolve")], {"act": "RESOLVE"}),
        _group("reopen", BROKEN, [("click", "#reopen")], {"act": "REOPEN"}),
        _group("unmute", LATE, [("click", "#unmute")], {"act": "UNMUTE"}),
        _group("mute", NA, [("click", "#mute"), ("click", "dialog .primary")], muted),
        _group(
            "assign",
            FULL,
            [("click", "#assign"), ("fill", "Owner", "the team"), ("click", "dialog .primary")],
            {"act": "ASSIGN", "assignee": "the team"},
        ),
        UserAction(
            name="act-on-groups",
            page=f"{reverse('errors')}?text={EMPTY.exception_class}",
            offered=reverse("groups-dialog"),
            url=reverse("act-on-groups"),
            form={"id": str(uuid4()), "act": "RESOLVE", "group": f"flights/{EMPTY.fingerprint}"},
            steps=[
                ("click", "[data-select][name=group]"),
                ("click", "#many-resolve"),
                ("click", "dialog .primary"),
            ],
            rest=(
                "/api/v1/errors/acts",
                {
                    "act": "RESOLVE",
                    "groups": [{"application": "flights", "fingerprint": EMPTY.fingerprint}],
                },
            ),
        ),
        _note(
            "note-on-group",
            f"{_error(TYPO)}?tab=notes",
            reverse("note-on-group", args=["flights", TYPO.fingerprint]),
            {"application": "flights", "fingerprint": TYPO.fingerprint},
        ),
    ]


def _error(cause: Failure) -> str:
    return reverse("error", args=["flights", cause.fingerprint])


def _group(verb: str, cause: Failure, steps: list[Step], asked: dict[str, Any]) -> UserAction:
    about = ["flights", cause.fingerprint]
    asks = verb in ("mute", "assign")
    url = (
        reverse(f"{verb}-group", args=about)
        if asks
        else reverse("act-on-group", args=["flights", verb, cause.fingerprint])
    )
    return UserAction(
        name=f"{verb}-group" if asks else "act-on-group",
        page=_error(cause),
        offered=reverse(f"{verb}-dialog", args=about) if asks else url,
        url=url,
        form={"id": str(uuid4()), "end": "failures", "failures": "100", "period": "3600"},
        steps=steps,
        rest=(f"/api/v1/errors/flights/{cause.fingerprint}/acts", asked),
    )


def _note(
    name: str, page: str, url: str, about: dict[str, str], *, before: Sequence[Step] = ()
) -> UserAction:
    return UserAction(
        name=name,
        page=page,
        offered=url,
        url=url,
        form={"id": str(uuid4()), "text": "seen"},
        steps=[*before, ("fill", "Note", "seen"), ("click", "text=Add note")],
        rest=("/api/v1/notes", about | {"text": "seen"}),
    )


def _redrive() -> UserAction:
    story = Story(application="redriven")
    story.starts(host="redriven")
    story.skips("NA", 1)
    (one,) = queries.dead_letters(queries.DeadLetterFilter(application="redriven")).rows
    selected = f"redriven/{one.id}"
    return UserAction(
        name="start-redrive",
        page=reverse("dead-letter", args=["redriven", one.id]),
        offered=f"{reverse('redrive-dialog')}?record={selected}",
        url=reverse("start-redrive"),
        form={"id": str(uuid4()), "record": selected, "reason": "so it is"},
        steps=[
            ("click", "#redrive"),
            ("fill", "Reason", "so it is"),
            ("click", "dialog .primary"),
        ],
        rest=(
            "/api/v1/dead-letters/redrive",
            {"application": "redriven", "ids": [one.id], "reason": "so it is"},
        ),
    )


def _of_the_rest(story: Story) -> list[UserAction]:
    waiting = story.command(story.pauses("cancel"))
    page = reverse("command", args=[waiting])
    server_only = frozenset({RecordFailed})
    with mock.patch.multiple(stream_entry, SERVER_ONLY=server_only, CHECKED_EVENTS=server_only):
        story.skips("valid-later", 1)
    story.send(b"garbled")
    garbled, later = queries.quarantine().rows
    cancel = reverse("cancel-command", args=[waiting])
    return [
        _note(
            "note-on-command",
            page,
            reverse("note-on-command", args=[waiting]),
            {"command": str(waiting)},
        ),
        UserAction(
            name="cancel-command",
            page=page,
            offered=cancel,
            url=cancel,
            form={"id": str(uuid4())},
            steps=[("click", "#cancel")],
            rest=(f"/api/v1/commands/{waiting}/cancel", {}),
        ),
        _redrive(),
        _quarantine(
            "put-back", later.id, "REQUEUE", [("click", f"#quarantine-{later.id} form button")]
        ),
        _quarantine(
            "dismiss-entry",
            garbled.id,
            "DISMISS",
            [
                ("click", f"#quarantine-{garbled.id} button:has-text('Dismiss')"),
                ("fill", "Reason", "so it is"),
                ("click", "dialog .danger"),
            ],
        ),
        UserAction(
            name="test-error",
            page=reverse("settings"),
            offered=reverse("test-error"),
            url=reverse("test-error"),
            form={},
            steps=[("click", "text=Send test error")],
            rest=None,
        ),
        UserAction(
            name="create-token",
            page=reverse("settings"),
            offered=reverse("create-token"),
            url=reverse("create-token"),
            form={"name": "ci", "scope": "read", "days": "90"},
            steps=[("fill", "Token name", "ci"), ("click", "text=Create token")],
            rest=("/api/v1/tokens", {"name": "ci by rest"}),
            least=Role.VIEWER,
        ),
        _reveal(),
        *_of_owners(),
        UserAction(
            name="save-filter",
            page=f"{reverse('errors')}?state=all",
            offered=f"{reverse('filter-dialog')}?page=errors&query=state%3Dall",
            url=reverse("save-filter"),
            form={"page": "errors", "query": "state=all", "name": "every"},
            steps=[
                ("click", ".saved summary"),
                ("click", "#save-filter"),
                ("fill", "Name", "every"),
                ("click", "dialog .primary"),
            ],
            rest=None,
            least=Role.VIEWER,
        ),
        *_of_accounts(),
        *_of_agents(),
        *_of_alerts(),
    ]


def _reveal() -> UserAction:
    story = Story(application="masked")
    story.starts()
    reveal = Reveal("masked", parse_keys(signing.public_key())[0])
    body = Redaction(drop=["pin"], reveal=reveal).body({"pin": "4711"}, stack=None)
    task = story.pauses("masked", sealed=body.sealed).digest
    failed = queries.task(task).failure
    assert failed is not None
    place = ["masked", failed.sequence]
    return UserAction(
        name="reveal",
        page=reverse("task", args=[task]),
        offered=reverse("reveal-dialog", args=place),
        url=reverse("reveal", args=place),
        form={"reason": "so it is"},
        steps=[
            ("click", "[data-reveal]"),
            ("fill", "Reason", "so it is"),
            ("click", "dialog .primary"),
            ("click", "dialog[open] [data-close]:text-is('Close')"),
        ],
        rest=(f"/api/v1/failures/masked/{failed.sequence}/reveal", {"reason": "so it is"}),
        least=Role.ADMIN,
    )


def _quarantine(name: str, number: int, act: str, steps: list[Step]) -> UserAction:
    url = reverse(name, args=[number])
    return UserAction(
        name=name,
        page=reverse("quarantine"),
        offered=reverse("dismiss-entry-dialog", args=[number]) if act == "DISMISS" else url,
        url=url,
        form={"id": str(uuid4()), "reason": "so it is"},
        steps=steps,
        rest=(f"/api/v1/quarantine/{number}/acts", {"act": act, "reason": "so it is"}),
    )


def _of_accounts() -> list[UserAction]:
    for name in ("kim", "gone", "tess"):
        actions.create_account(name, Role.VIEWER, actor="ada")
    actions.deactivate_account("gone", actor="ada")
    page = reverse("settings")
    row = "tr:has-text('{}') ".format
    found = []
    for verb, name, button in (
        ("role", "kim", "Set role"),
        ("password", "kim", "Reset password"),
        ("deactivate", "kim", "Deactivate account"),
        ("activate", "gone", "Activate account"),
    ):
        url = reverse("change-account", args=[verb])
        steps: list[Step] = [
            ("click", f"{row(name)} summary"),
            ("click", f"{row(name)} >> text='{button}'"),
        ]
        form = {"name": name, "role": "operator"}
        found.append(UserAction("change-account", page, url, url, form, steps, None, Role.ADMIN))
    actions.grant_role("kim", "known", Role.VIEWER, actor="ada")
    url = reverse("grant-role")
    grant: list[Step] = [
        ("type", "#application-roles .card-foot [name=name]", "kim"),
        ("type", "#application-roles .card-foot [name=application]", "many"),
        ("click", "text=Grant role"),
    ]
    form = {"name": "kim", "application": "many", "role": "viewer"}
    found.append(UserAction("grant-role", page, url, url, form, grant, None, Role.ADMIN))
    url = reverse("withdraw-role")
    withdraw: list[Step] = [("click", "#application-roles tr:has-text('known') button")]
    form = {"name": "kim", "application": "known"}
    found.append(UserAction("withdraw-role", page, url, url, form, withdraw, None, Role.ADMIN))
    url = reverse("create-account")
    create: list[Step] = [("fill", "New account", "new"), ("click", "text=Create account")]
    form = {"name": "new", "role": "viewer"}
    found.append(UserAction("create-account", page, url, url, form, create, None, Role.ADMIN))
    for _ in range(PER_NAME_AND_ADDRESS):
        actions.record_wrong_password("kim", "10.0.0.7")
    url = reverse("unlock")
    unlock: list[Step] = [("click", "#locked-out button")]
    form = {"subject": "kim"}
    found.append(UserAction("unlock", page, url, url, form, unlock, None, Role.ADMIN))
    token = actions.create_token("tess", "old", actor="tess").row.id
    url = reverse("revoke-token", args=[token])
    revoke: list[Step] = [("click", f"#token-{token} button")]
    found.append(UserAction("revoke-token", page, url, url, {}, revoke, None, Role.ADMIN))
    return found


def _of_agents() -> list[UserAction]:
    """Add a credential of an agent, and remove one."""
    known = actions.add_agent_credential("known", actor="ada").id
    page, admin = reverse("settings"), Role.ADMIN
    url = reverse("add-agent")
    add: list[Step] = [
        ("type", f"form[action='{url}'] [name=application]", "new"),
        ("click", "text=Add credential"),
    ]
    rest: tuple[str, dict[str, Any]] = ("/api/v1/agents", {"application": "new"})
    form = {"application": "new"}
    added = UserAction("add-agent", page, url, url, form, add, rest, admin)
    url, row = reverse("remove-agent", args=[known]), f"#credential-{known}"
    remove: list[Step] = [("click", f"{row} summary"), ("click", f"{row} .danger")]
    return [added, UserAction("remove-agent", page, url, url, {}, remove, None, admin)]


def done() -> int:
    """Return the number of performed actions: each leaves an entry of the audit."""
    return models.AuditEntry.objects.count()


class Offered(HTMLParser):
    """The URLs of the enabled controls of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.urls: set[str] = set()
        self._form = ""
        self._selections: dict[str | None, list[str]] = {}
        self._selection: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form" and given.get("method") == "post":
            self._form = given.get("action") or ""
        elif tag == "button" and "disabled" not in given:
            self.urls |= {url for url in (given.get("hx-get"), self._form) if url}
        elif tag == "form" and "data-selection" in given:
            # Its buttons are disabled until a row is selected.
            self._selection = given["id"]
            self._selections[self._selection] = [given.get("hx-get") or ""]
        elif tag == "button" and self._selection is not None:
            self._selections[self._selection].append(given.get("hx-get") or "")
        elif tag == "input" and "data-select" in given and "disabled" not in given:
            self.urls.update(self._selections.get(given.get("form"), []))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form, self._selection = "", None


def only_posts(view: Callable[..., Any]) -> bool:
    """Return whether a view accepts only POST."""
    if iscoroutinefunction(view):
        return False
    try:
        return bool(view(RequestFactory().get("/")).status_code == 405)
    except (AttributeError, TypeError):
        return False  # The view needs a user and arguments.


def _of_owners() -> list[UserAction]:
    for owner in ("ana", "the team"):
        form = actions.OwnerRuleForm(owner=owner, application=owner.split()[0])
        actions.save_owner_rule(None, form, actor="ada")
    *_, last = queries.owners().rules
    delete = reverse("delete-owner-rule", args=[last.id])
    return [
        UserAction(
            name="save-owner-rule",
            page=reverse("owners"),
            offered=reverse("owner-rule-dialog"),
            url=reverse("save-owner-rule"),
            form={"owner": "ben", "application": "flights", "place": "1"},
            steps=[
                ("click", "#add-rule"),
                ("fill", "Owner", "ben"),
                ("click", "dialog .primary"),
            ],
            rest=None,
        ),
        UserAction(
            name="delete-owner-rule",
            page=reverse("owners"),
            offered=delete,
            url=delete,
            form={},
            steps=[
                ("click", f"#rule-{last.id} summary"),
                ("click", f"#rule-{last.id} .danger"),
            ],
            rest=None,
        ),
    ]


def _of_alerts() -> list[UserAction]:
    """Each act on alerts; a channel and a rule of their own are deleted."""
    kept, _ = configuration.add_channel("http://127.0.0.1:9/kept", "kept", actor="ada")
    spare, _ = configuration.add_channel("http://127.0.0.1:9/spare", "spare", actor="ada")
    form = configuration.RuleForm(name="narrow", channel=kept.id)
    narrow = configuration.save_rule(None, form, actor="ada")
    configuration.request_test(kept.id, actor="ada")
    models.AlertMessage.objects.update(status="FAILED")
    message = models.AlertMessage.objects.get()
    wanted = subscriptions.SubscriptionForm(
        address="http://127.0.0.1:9/events", name="events", event_types=("RecordFailed",)
    )
    webhook, _ = subscriptions.add(wanted, actor="ada")
    wanted = msgspec.structs.replace(wanted, name="spare events")
    spare_webhook, _ = subscriptions.add(wanted, actor="ada")
    now = timezone.now()
    alert = models.Alert.objects.create(
        cause="TASKS_PAUSED", critical=True, application="many", subject="one", title="one",
        path="/", since=now, opened_at=now,
    )  # fmt: skip
    settings, confirm = reverse("alert-settings"), ("click", "dialog .primary")
    rule = {"name": "another", "channel": str(kept.id), "every": "1", "enabled": "1"}

    def act(
        name: str,
        url: str,
        steps: list[Step],
        *,
        form: dict[str, str] | None = None,
        asks: str = "",
        rest: tuple[str, dict[str, Any]] | None = None,
    ) -> UserAction:
        return UserAction(
            name=name,
            page=settings,
            offered=asks or url,
            url=url,
            form=form or {},
            steps=steps,
            rest=rest,
            least=Role.ADMIN,
        )

    def delete(name: str, id: int, row: str) -> UserAction:
        steps: list[Step] = [("click", f"{row} summary"), ("click", f"{row} .danger")]
        return act(name, reverse(name, args=[id]), steps)

    acknowledge = reverse("acknowledge-alert", args=[alert.id])
    again = reverse("send-alert-again", args=[message.id])
    page = reverse("alerts")
    return [
        act(
            "add-channel",
            reverse("add-channel"),
            [
                ("fill", "Address of the channel", "http://127.0.0.1:9/x"),
                ("click", "text=Add channel"),
            ],
            form={"address": "http://127.0.0.1:9/x"},
        ),
        act(
            "test-channel",
            reverse("test-channel", args=[kept.id]),
            [("click", f"#channel-{kept.id} button:has-text('Send test')")],
        ),
        delete("delete-channel", spare.id, f"#channel-{spare.id}"),
        act(
            "save-rule",
            reverse("save-rule"),
            [("click", "text=Add rule"), ("fill", "Name", "another"), confirm],
            form=rule,
            asks=reverse("rule-dialog"),
        ),
        delete("delete-rule", narrow.id, f"#rule-{narrow.id}"),
        act(
            "add-subscription",
            reverse("add-subscription"),
            [
                ("click", "text=Add webhook…"),
                ("fill", "Address", "http://127.0.0.1:9/y"),
                ("click", "dialog input[value=RecordFailed]"),
                confirm,
            ],
            form={"address": "http://127.0.0.1:9/y", "event_type": "RecordFailed"},
            asks=reverse("subscription-dialog"),
            rest=(
                "/api/v1/event-subscriptions",
                {"address": "http://127.0.0.1:9/z", "event_types": ["RecordFailed"], "name": "z"},
            ),
        ),
        delete(
            "delete-subscription",
            spare_webhook.id,
            f"#subscription-{spare_webhook.id} details:last-child",
        ),
        act(
            "replay-subscription",
            reverse("replay-subscription", args=[webhook.id]),
            [
                ("click", f"#subscription-{webhook.id} summary:has-text('Replay')"),
                ("click", f"#subscription-{webhook.id} button:has-text('Deliver again')"),
            ],
            form={"hours": "24"},
            rest=(
                f"/api/v1/event-subscriptions/{webhook.id}/replay",
                {"since": "2026-11-20T09:00:00Z"},
            ),
        ),
        act(
            "set-limits",
            reverse("set-limits"),
            [("click", "text=Set limits"), confirm],
            form={"held_minutes": "30"},
            asks=reverse("limits-dialog"),
        ),
        UserAction(
            name="acknowledge-alert",
            page=page,
            offered=acknowledge,
            url=acknowledge,
            form={},
            steps=[("click", f"#alert-{alert.id} button")],
            rest=(f"/api/v1/alerts/{alert.id}/acknowledge", {}),
        ),
        UserAction(
            name="send-alert-again",
            page=page,
            offered=again,
            url=again,
            form={},
            steps=[("click", f"#message-{message.id} button")],
            rest=None,
        ),
    ]
