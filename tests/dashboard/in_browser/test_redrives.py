"""Dead letters are redriven in a real browser: selected in their list, and edited on their page."""

from __future__ import annotations

import json
import re
from uuid import uuid4

import msgspec
import pytest
from django.urls import reverse
from playwright.sync_api import Locator, Page, Route, expect

from arrester.controlplane import queries
from arrester.controlplane.dead_letter_records import Record, State
from arrester.controlplane.redis import redis_client
from arrester.domain.events import Body, CommandKind
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import CommandState
from tests.dashboard.browser import open_live
from tests.dashboard.story import Story

pytestmark = pytest.mark.e2e


def redrive() -> CommandState:
    (found,) = (each for each in queries.commands().rows if each.kind is CommandKind.REDRIVE)
    return found


def open_editor(page: Page, story: Story) -> tuple[queries.DeadLetter, Locator]:
    """Return one of two dead letters, and the dialog that waits for its record."""
    story.skips("JFK", 2)
    one = queries.dead_letters(queries.DeadLetterFilter(application="flights")).rows[0]
    page.goto(reverse("dead-letter", args=["flights", one.id]))
    page.get_by_role("button", name="Edit and redrive").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("A worker reads the record")
    return one, dialog


def test_selected_dead_letters_are_redriven(page: Page, story: Story) -> None:
    story.skips("JFK", 30)
    open_live(page, reverse("dead-letters"))
    for number in (0, 1, 2):
        page.locator("[data-select][name=record]").nth(number).check()
    page.get_by_role("button", name="Redrive 3 selected").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Redrive 3 dead letters")
    dialog.get_by_label("Reason").fill("the build is fixed")
    dialog.get_by_role("button", name="Redrive 3 dead letters").click()
    expect(page.locator("h1")).to_contain_text("Redrive dead letters")
    # A reload, and a copied link, are of this page.
    expect(page).to_have_url(re.compile(reverse("command", args=[redrive().id])))
    assert (redrive().actor, redrive().reason) == ("ana", "the build is fixed")
    page.get_by_role("button", name="Stop redrive").click()
    expect(page.locator("h1 .state")).to_have_text("CANCELLED")


def test_a_selection_that_cannot_be_redriven_has_the_reason(page: Page, story: Story) -> None:
    story.skips("JFK", 1)
    ended = Story(pipeline="ended", checkpoint=str(uuid4()))
    ended.starts()
    ended.skips("LGA", 1)
    ended.stops()
    open_live(page, reverse("dead-letters"))
    button, why = page.locator("#redrive-selected"), page.locator("#why-not-selected")
    expect(why).to_be_hidden()
    page.get_by_label("Select ended_LGA").check()
    expect(button).to_be_disabled()
    expect(why).to_contain_text("not possible now: no live instance runs ended on the checkpoint")
    page.get_by_label("Select delays_JFK").check()
    expect(why).to_contain_text("the selected ones are of several pipelines or checkpoints")
    page.get_by_label("Select ended_LGA").uncheck()
    expect(button).to_be_enabled()
    expect(why).to_be_hidden()


def test_a_closed_dialog_stays_closed_when_its_request_is_answered(
    page: Page, story: Story
) -> None:
    one, dialog = open_editor(page, story)
    ask, asked = reverse("edit-record-dialog", args=["flights", one.id]), list[Route]()
    with page.expect_request(f"**{ask}"):
        page.route(f"**{ask}", lambda route: asked.append(route))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.evaluate("document.body.addEventListener('htmx:afterOnLoad', () => document.title = '')")
    asked[0].continue_()
    expect(page).to_have_title("")
    expect(dialog).to_be_hidden()


def test_a_record_is_edited_reviewed_and_redriven(page: Page, story: Story) -> None:
    one, dialog = open_editor(page, story)
    record = {"dep_delay": "NA", "origin": "JFK"}
    ready = Record(state=State.READY, body=Body(record=record, redacted=("passenger",)))
    key = redis_keys.dead_letter_record("flights", one.id)
    redis_client.client().set(key, msgspec.json.encode(ready))
    dialog.get_by_role("button", name="JSON").click()
    text = dialog.locator("textarea[name=text]")
    expect(text).to_have_value(json.dumps(record, indent=2))
    text.fill(json.dumps(record | {"dep_delay": None}))
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.locator("del")).to_have_text('"NA"')
    expect(dialog.locator("ins")).to_have_text("null")
    patch = dialog.get_by_label("JSON Patch")
    patch.fill(patch.input_value().replace("null", "12"))
    dialog.get_by_role("button", name="Preview patch").click()
    expect(dialog.locator("ins")).to_have_text("12")
    dialog.get_by_label("Reason").fill("NA is no delay")
    dialog.get_by_role("button", name="Redrive 1 dead letter").click()
    expect(page.locator("h1")).to_contain_text("Redrive dead letters")
    patched = redrive().redrive
    assert patched and json.loads(patched.patch or "")[0]["value"] == 12
