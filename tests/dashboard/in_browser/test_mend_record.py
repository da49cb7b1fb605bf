"""The record that stopped a task is edited on the page of the task."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from arrester.controlplane import queries
from tests.dashboard.browser import open_live
from tests.dashboard.story import RECORD, Story

pytestmark = pytest.mark.e2e


def test_a_failed_record_is_edited_reviewed_and_sent(page: Page, story: Story) -> None:
    task = story.pauses("JFK", held=12)
    open_live(page, reverse("task", args=[task.digest]))
    page.get_by_role("button", name="Edit record and resume").click()
    dialog = page.get_by_role("dialog")
    text = dialog.get_by_label("Record")
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
