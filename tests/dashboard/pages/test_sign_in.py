"""Log-in, lock-out after wrong passwords, the own password, and the idle time-out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane import actions, models, queries
from arrester.controlplane.access import login_attempts
from arrester.controlplane.access.login_attempts import PER_ADDRESS, PER_NAME, PER_NAME_AND_ADDRESS
from arrester.controlplane.queries.operation.installation import server_checks
from arrester.controlplane.web.client_address import UNKNOWN
from arrester.controlplane.web.login_queue import (
    DELAY_SECONDS,
    MAXIMUM,
    MAXIMUM_PER_ADDRESS,
    LoginQueue,
)
from arrester.controlplane.web.request_limits import Message, Receive, Scope, Send
from arrester.controlplane.web.session_store import SessionStore
from tests.dashboard.accounts import logged_in, make_user

PASSWORD, NEW = "only for tests", "Blue-horse-battery-9"


@pytest.fixture
def eve(db: None, settings: Any) -> User:
    """Return an operator with a password that is checked quickly."""
    # Before the change, since other tests share the hash of its password.
    user = make_user("eve", "operator")
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    user.set_password(PASSWORD)
    user.save()
    return user


def log_in(name: str, password: str, *, address: str = "10.0.0.1", **more: Any) -> Any:
    form = {"username": name, "password": password}
    return Client().post(reverse("login"), form, REMOTE_ADDR=address, **more)


def audited() -> list[tuple[str, str, str, str]]:
    entries = models.AuditEntry.objects.order_by("id")
    return list(entries.values_list("actor", "about", "act", "detail"))


def test_log_ins_are_in_the_audit(eve: User, viewer: Client) -> None:
    client = Client()
    form = {"username": "eve", "password": PASSWORD}
    assert client.post(reverse("login"), form, REMOTE_ADDR="10.0.0.1").status_code == 302
    assert client.get(reverse("overview")).status_code == 200
    assert client.post(reverse("logout"), REMOTE_ADDR="10.0.0.1").status_code == 302
    assert "do not match" in log_in("eve", "a wrong one").content.decode()
    assert audited() == [
        ("eve", "eve", "LOGGED_IN", "from 10.0.0.1"),
        ("eve", "eve", "LOGGED_OUT", "from 10.0.0.1"),
        ("", "eve", "WRONG_PASSWORD", "from 10.0.0.1"),
    ]
    rows = viewer.get("/api/v1/audit?kind=logins").json()["results"]
    assert [each["kind"] for each in rows] == ["WRONG_PASSWORD", "LOGGED_OUT", "LOGGED_IN"]
    assert viewer.get("/api/v1/audit?kind=accounts").json()["results"] == []
    for kind in ("all", "logins"):
        page = viewer.get(reverse("audit"), {"kind": kind}).content.decode()
        assert "Wrong password" in page and "not logged in" in page
    # They would hide the actions.
    page = viewer.get(reverse("audit")).content.decode()
    assert "Wrong password" not in page
    assert viewer.get("/api/v1/audit?logins=false").json()["results"] == []


def test_a_name_that_is_no_account_is_not_stored(eve: User) -> None:
    log_in("my secret pass", PASSWORD)
    log_in("my secret pass", PASSWORD)
    [(_, first, *_), (_, second, *_)] = audited()
    assert first == second and re.fullmatch(r"unknown name #[0-9a-f]{8}", first)


@pytest.mark.parametrize("name", ["eve", "no-account"])
def test_too_many_wrong_passwords_lock_a_name_from_an_address(eve: User, name: str) -> None:
    for _ in range(PER_NAME_AND_ADDRESS):
        assert log_in(name, "wrong").status_code == 200
    with mock.patch("django.contrib.auth.forms.authenticate") as authenticate:
        refused = log_in(name, PASSWORD)
    assert refused.status_code == 429 and not authenticate.called
    assert 0 < int(refused.headers["Retry-After"]) <= login_attempts.WINDOW.total_seconds()
    assert re.search(r"Try again at .*\d\d:\d\d:\d\d UTC", refused.content.decode())
    about = login_attempts.shown_name(name)
    assert audited()[-1] == ("", about, "LOCKED_OUT", "from 10.0.0.1")
    assert len(audited()) == PER_NAME_AND_ADDRESS + 1
    assert log_in("eve", PASSWORD, address="10.0.0.2").status_code == 302


def test_a_lock_ends(eve: User) -> None:
    past = timezone.now() - login_attempts.WINDOW
    for _ in range(PER_NAME_AND_ADDRESS):
        models.AuditEntry.objects.create(
            at=past, actor="", about="eve", act="WRONG_PASSWORD", detail="from 10.0.0.1"
        )
    assert login_attempts.locked_until("eve", "10.0.0.1", past) is not None
    assert log_in("eve", PASSWORD).status_code == 302


def test_a_right_password_ends_the_count_of_its_name_and_address(eve: User) -> None:
    for _ in range(2):
        for _ in range(PER_NAME_AND_ADDRESS - 1):
            log_in("eve", "wrong")
        assert log_in("eve", PASSWORD).status_code == 302


def test_many_addresses_lock_a_name_and_many_names_an_address(eve: User, settings: Any) -> None:
    for number in range(PER_NAME):
        actions.record_wrong_password("eve", f"10.1.0.{number}")
    assert log_in("eve", PASSWORD).status_code == 429
    for number in range(PER_ADDRESS):
        actions.record_wrong_password(f"name-{number}", "10.0.0.9")
    make_user("ida")
    assert log_in("ida", "wrong", address="10.0.0.9").status_code == 429
    assert log_in("ida", "wrong", address="10.0.0.8").status_code == 200
    # The address is the one of a proxy.
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, https=True)
    assert log_in("ida", "wrong", address="10.0.0.9").status_code == 200


def test_an_admin_unlocks(eve: User) -> None:
    admin = logged_in(make_user("ada", "admin"))
    for _ in range(PER_NAME_AND_ADDRESS):
        log_in("eve", "wrong")
    page = admin.get(reverse("settings")).content.decode()
    assert "Locked out" in page and 'value="eve"' in page
    assert admin.post(reverse("unlock"), {"subject": "eve"}).status_code == 302
    assert "Locked out" not in admin.get(reverse("settings")).content.decode()
    assert audited()[-1] == ("ada", "eve", "UNLOCKED", "")
    assert log_in("eve", PASSWORD).status_code == 302
    assert admin.post(reverse("unlock"), {"subject": "eve"}).status_code == 404


def test_the_address_behind_proxies_is_the_one_that_they_report(eve: User, settings: Any) -> None:
    spoofed = {"HTTP_X_FORWARDED_FOR": "1.2.3.4, 10.7.7.7"}
    log_in("eve", "wrong", address="10.0.0.1", **spoofed)
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, proxies=1)
    log_in("eve", "wrong", address="10.0.0.1", **spoofed)
    log_in("eve", "wrong", address="10.0.0.1", HTTP_X_FORWARDED_FOR="<script>")
    seen = [detail for *_, detail in audited()]
    assert seen == ["from 10.0.0.1", "from 10.7.7.7", f"from {UNKNOWN}"]


def test_a_user_changes_the_own_password(eve: User) -> None:
    here, elsewhere = logged_in(eve), logged_in(eve)
    url = reverse("password")

    def change(old: str, new: str, again: str = NEW) -> Any:
        form = {"old_password": old, "new_password1": new, "new_password2": again}
        return here.post(url, form)

    assert "Change password" in here.get(url).content.decode()
    wrong = change("not that one", NEW)
    assert wrong.status_code == 400 and "entered incorrectly" in wrong.content.decode()
    short = change(PASSWORD, "short", "short")
    assert short.status_code == 400 and "too short" in short.content.decode()
    changed = change(PASSWORD, NEW)
    assert changed.status_code == 200 and "Password changed" in changed.content.decode()
    assert here.get(reverse("overview")).status_code == 200
    assert elsewhere.get(reverse("overview")).status_code == 302
    assert [act for *_, act, _ in audited()] == ["WRONG_PASSWORD", "PASSWORD_CHANGED"]
    for _ in range(PER_NAME_AND_ADDRESS):
        change("not that one", NEW)
    refused = change(NEW, PASSWORD, PASSWORD)
    assert refused.status_code == 429 and refused.headers["Retry-After"]
    assert "Try again at" in refused.content.decode()


def test_a_session_ends_after_idle_time(eve: User) -> None:
    client = logged_in(eve)
    row = Session.objects.get()

    def idle(**headers: str) -> timedelta:
        """Return by how much a request extends a session that is an hour old."""
        hour = timedelta(hours=1)
        stored = client.session
        stored["extended"] -= 3600
        stored.save()
        Session.objects.update(expire_date=row.expire_date - hour)
        assert client.get(reverse("overview"), headers=headers).status_code == 200
        return Session.objects.get().expire_date - (row.expire_date - hour)

    assert idle() >= timedelta(hours=1)
    assert idle(**{"HX-Request": "true", "HX-Trigger": "live"}) == timedelta(0)
    assert timedelta(hours=11) < row.expire_date - timezone.now() <= timedelta(hours=12)
    Session.objects.update(expire_date=timezone.now())
    assert client.get(reverse("overview")).status_code == 302


def test_the_database_has_no_key_of_a_session(eve: User) -> None:
    client, other = logged_in(eve), logged_in(eve)
    rows = {each.session_key: each for each in Session.objects.all()}
    key = client.cookies["arrester_session"].value
    assert key not in str([vars(each) for each in rows.values()])
    # What a dump has does not log in.
    for stored in rows:
        thief = Client()
        thief.cookies["arrester_session"] = stored
        assert thief.get(reverse("overview")).status_code == 302
    assert client.get(reverse("overview")).status_code == 200
    client.post(reverse("logout"))
    assert Session.objects.count() == 1
    assert other.get(reverse("overview")).status_code == 200
    kept = other.cookies["arrester_session"].value
    assert SessionStore().exists(kept) and not SessionStore().exists(key)


def test_sessions_are_the_same_for_the_stream_of_live_pages(eve: User) -> None:
    key = logged_in(eve).cookies["arrester_session"].value

    async def story() -> None:
        store = SessionStore(key)
        user = await store.aget("_auth_user_id")
        assert user == str(eve.id)
        assert await store.aexists(key)
        await store.aset("mark", 1)
        await store.asave()
        assert await SessionStore(key).aget("mark") == 1
        await store.adelete()
        assert await SessionStore(key).aget("_auth_user_id") is None

    async_to_sync(story)()


@pytest.mark.parametrize("url", ["/problems", "/api/v1/status"])
def test_polls_and_rest_do_not_extend_a_session(eve: User, url: str) -> None:
    client = logged_in(eve)
    stored = client.session
    stored["extended"] = 0
    stored.save()
    assert client.get(url).status_code == 200
    assert client.session["extended"] == 0
    assert client.get(reverse("glossary")).status_code == 200
    assert client.session["extended"] > 0


async def receive_nothing() -> Message:
    raise AssertionError


def form_from(address: str, *forwarded: str) -> Scope:
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    client = (address, 40_000)
    return {
        "type": "http", "method": "POST", "path": "/login", "headers": headers, "client": client
    }  # fmt: skip


def log_ins(scopes: Sequence[Scope], *, proxies: int | None = 0) -> list[tuple[Scope, int]]:
    """Send forms at once, the password of the first one is right; return forms and statuses in
    the order of the answers."""
    answered: list[tuple[Scope, int]] = []
    checking = 0

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal checking
        checking += 1
        await asyncio.sleep(0)
        assert checking == 1, "passwords are checked one by one"
        checking -= 1
        await send({"type": "http.response.start", "status": 302 if scope is scopes[0] else 200})
        await send({"type": "http.response.body", "body": b""})

    async def story() -> None:
        queue = LoginQueue(check, proxies=proxies, delay=7)

        async def log_in(scope: Scope) -> None:
            async def send(message: Message) -> None:
                if "status" in message:
                    answered.append((scope, message["status"]))

            await queue(scope, receive_nothing, send)

        await asyncio.gather(*map(log_in, scopes))

    asyncio.run(story())
    return answered


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the waits of the queue, which end at once in the order of their begin."""
    wait, waits = asyncio.sleep, list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await wait(0.1 if seconds else 0)

    monkeypatch.setattr("arrester.controlplane.web.login_queue.asyncio.sleep", sleep)
    return waits


def test_log_ins_are_checked_one_by_one_and_refusals_are_delayed(waits: list[float]) -> None:
    answers = log_ins([form_from(f"10.0.0.{number}") for number in range(MAXIMUM + 3)])
    statuses = [status for _, status in answers]
    assert (statuses.count(302), statuses.count(429)) == (1, 3)
    # Only the accepted one is answered at once.
    assert statuses[0] == 302
    assert waits.count(7) == len(statuses) - 1
    assert DELAY_SECONDS >= 1


def test_addresses_take_turns_and_have_a_share_of_the_places(waits: list[float]) -> None:
    attack = [form_from("10.0.0.1") for _ in range(28)]
    person = form_from("10.0.0.2")

    def checked(answers: list[tuple[Scope, int]]) -> list[str]:
        return [scope["client"][0] for scope, status in answers if status != 429]

    order = checked(log_ins([*attack, person]))
    # One check may be in progress, and one may wait.
    assert order.index("10.0.0.2") <= 1
    assert order.count("10.0.0.1") == MAXIMUM_PER_ADDRESS
    more = [form_from("10.0.0.3") for _ in range(3)]
    order = checked(log_ins([*attack[:4], *more, person]))
    assert order[:6] == ["10.0.0.1", "10.0.0.3", "10.0.0.2", "10.0.0.1", "10.0.0.3", "10.0.0.1"]


@pytest.mark.parametrize(
    ("same", "proxies"),
    [
        (
            [
                form_from("10.0.0.1", "1.1.1.1, 9.9.9.9"),
                form_from("10.0.0.1", "2.2.2.2", "9.9.9.9"),
            ],
            1,
        ),
        ([form_from("2001:db8::1"), form_from("2001:db8::2")], 0),
        ([form_from("::ffff:10.0.0.1"), form_from("10.0.0.1")], 0),
    ],
)
def test_what_one_client_has_is_one_share(
    same: list[Scope], proxies: int, waits: list[float]
) -> None:
    statuses = [status for _, status in log_ins(same * MAXIMUM_PER_ADDRESS, proxies=proxies)]
    assert statuses.count(429) == MAXIMUM_PER_ADDRESS


def test_different_clients_have_a_share_each(waits: list[float]) -> None:
    mapped = [form_from(f"::ffff:10.0.0.{number}") for number in range(MAXIMUM_PER_ADDRESS + 1)]
    assert all(status != 429 for _, status in log_ins(mapped))
    behind = [form_from("10.0.0.1", f"9.9.9.{each}") for each in range(MAXIMUM_PER_ADDRESS + 1)]
    assert all(status != 429 for _, status in log_ins(behind, proxies=1))


def test_unknown_addresses_share_all_places(waits: list[float]) -> None:
    statuses = [status for _, status in log_ins([form_from("10.0.0.1")] * 20, proxies=None)]
    assert statuses.count(429) == 0


def test_the_page_of_a_lock_is_listed_once_per_subject(eve: User) -> None:
    for _ in range(PER_NAME_AND_ADDRESS):
        actions.record_wrong_password("eve", "10.0.0.1", actor="eve")
    [lock] = queries.locks(timezone.now())
    assert (lock.name, lock.address, lock.subject) == ("eve", "10.0.0.1", "eve")


def test_a_proxy_whose_addresses_are_unknown_is_a_finding(settings: Any) -> None:
    def found() -> list[str]:
        return [each.check for each in server_checks.settings_for_production()]

    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, https=True, proxies=0)
    assert "server ARRESTER_PROXIES" in found()
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, proxies=1)
    assert "server ARRESTER_PROXIES" not in found()
