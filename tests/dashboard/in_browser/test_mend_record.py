"""The record that stopped a task is edited on the page of the task."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from arrester.controlplane import queries
from tests.dashboard.browser import open_live
from tests.dashboard.story import NA, RECORD, Story

pytestmark = pytest.mark.e2e


def test_a_failed_record_is_edited_reviewed_and_sent(page: Page, story: Story) -> None:
    task = story.pauses("JFK", held=12)
    open_live(page, reverse("task", args=[task.digest]))
    page.get_by_role("button", name="Edit record and resume").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="JSON").click()
    text = dialog.locator("textarea[name=text]")
    expect(text).to_have_value(json.dumps(RECORD, indent=2))
    text.fill(json.dumps(RECORD | {"dep_delay": 9}))
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.locator("ins")).to_have_text("9")
    dialog.get_by_label("Reason").fill("a typo")
    dialog.get_by_role("button", name="Change record and resume").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#actions")).to_contain_text("waiting for an instance")
    command = queries.commands().rows[0]
    assert (command.actor, command.reason) == ("ana", "a typo")
    assert command.patch == '[{"op":"replace","path":"/dep_delay","value":9}]'


def test_an_edited_record_is_tested_in_its_review(page: Page, story: Story) -> None:
    task = story.pauses("JFK")
    open_live(page, reverse("task", args=[task.digest]))
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Edit record and resume").click()
    for value, failure, text in (("9", NA, "Failed at deserialize"), ("8", None, "Passed")):
        dialog.get_by_role("button", name="JSON").click()
        dialog.locator("textarea[name=text]").fill(json.dumps(RECORD | {"dep_delay": int(value)}))
        dialog.get_by_role("button", name="Review changes").click()
        result = dialog.locator("#record-test")
        # The result belongs to this change.
        expect(result).to_have_text("")
        test = dialog.get_by_role("button", name="Test record")
        test.click()
        expect(result).to_contain_text("waits for the instance")
        story.tests(queries.commands().rows[0].id, rows=2, failure=failure)
        expect(result).to_contain_text(text)
        expect(test).to_be_focused()
        if failure is not None:
            dialog.get_by_role("button", name="Edit again").click()
            expect(dialog.get_by_label("dep_delay", exact=True)).to_have_value("9")
    dialog.get_by_label("Reason").fill("a typo")
    dialog.get_by_role("button", name="Change record and resume").click()
    expect(dialog).to_be_hidden()
    kinds = [each.kind.value for each in queries.commands().rows]
    assert kinds == ["EDIT_RECORD", "TEST_RECORD", "TEST_RECORD"]


def test_fields_are_edited_in_their_texts_and_types_are_checked(page: Page, story: Story) -> None:
    task = story.pauses("JFK", record=RECORD | {"notes": '{"late": true,  "n": 1.50}'})
    open_live(page, reverse("task", args=[task.digest]))
    page.get_by_role("button", name="Edit record and resume").click()
    dialog = page.get_by_role("dialog")
    review = dialog.get_by_role("button", name="Review changes")
    # The cells of a line of CSV, a number within a column, and JSON in a text.
    dialog.get_by_label("4", exact=True).fill("6:41, or so")
    dialog.get_by_label("Type of gust").select_option("number")
    dialog.get_by_label("gust", exact=True).fill("NA")
    dialog.get_by_label("n", exact=True).fill("2.50")
    review.click()
    # The browser refuses it before the review.
    expect(dialog.locator("del")).to_have_count(0)
    assert dialog.locator("input:invalid").count() == 1
    dialog.get_by_label("gust", exact=True).fill("31.0")
    review.click()
    expect(dialog.locator("ins mark")).to_have_count(3)
    expect(dialog.locator("th")).to_have_text(["value", "weather", "notes"])
    dialog.get_by_label("Reason").fill("a typo")
    dialog.get_by_role("button", name="Change record and resume").click()
    expect(dialog).to_be_hidden()
    value = str(RECORD["value"]).replace(",641,", ',"6:41, or so",')
    assert json.loads(queries.commands().rows[0].patch or "") == [
        {"op": "replace", "path": "/value", "value": value},
        {"op": "replace", "path": "/weather/gust", "value": 31.0},
        {"op": "replace", "path": "/notes", "value": '{"late": true,  "n": 2.50}'},
    ]


def test_a_masked_and_a_cut_value_stay_and_null_is_a_type(page: Page, story: Story) -> None:
    record: dict[str, object] = {"a": "NA", "b": "long…[cut]", "passenger": {"age": 40}}
    task = story.pauses("JFK", record=record)
    open_live(page, reverse("task", args=[task.digest]))
    page.get_by_role("button", name="Edit record and resume").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".not-editable")).to_contain_text("truncated")
    dialog.get_by_label("Type of a", exact=True).select_option("NULL")
    expect(dialog.get_by_label("a", exact=True)).to_be_disabled()
    dialog.get_by_label("age", exact=True).fill("41")
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.locator("ins").first).to_have_text("null")
    patch = json.loads(dialog.locator("[name=patch]").input_value())
    assert [(each["path"], each["value"]) for each in patch] == [
        ("/a", None),
        ("/passenger/age", 41),
    ]
