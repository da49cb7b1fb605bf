"""Every action with the mouse, as each role that may perform it."""

from __future__ import annotations

from typing import Literal

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from arrester.controlplane import queries
from arrester.controlplane.access.roles import Role
from arrester.controlplane.ingest import fold_stream
from tests.dashboard.browser import Windows
from tests.dashboard.every_action import done, user_actions
from tests.dashboard.story import Story
from tests.patience import PATIENCE_MS

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("name", "role", "size", "scheme"),
    [
        ("ana", Role.OPERATOR, (1280, 800), "light"),
        pytest.param("ana", Role.OPERATOR, (360, 740), "dark", marks=pytest.mark.long),
        pytest.param("ada", Role.ADMIN, (1280, 800), "dark", marks=pytest.mark.long),
        pytest.param("ada", Role.ADMIN, (360, 740), "light", marks=pytest.mark.long),
    ],
)
def test_allowed_actions_are_performed_with_the_mouse(
    windows: Windows,
    story: Story,
    name: str,
    role: Role,
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
) -> None:
    everything = [action for action in user_actions(story) if action.is_allowed(role)]
    with (
        windows.open(name, size=size, scheme=scheme) as page,
        page.add_init_script("localStorage['arrester-live'] = 'off'"),
    ):
        for action in everything:
            before = done()
            action.press(page)
            if action.name == "test-error":
                page.wait_for_url("**/errors?application=test*")
                continue
            for _ in range(PATIENCE_MS // 50):
                if done() > before:
                    break
                page.wait_for_timeout(50)
            assert done() > before, action
            if action.name in ("test-record", "test-dead-letter"):
                # The dialog has the result.
                expect(page.locator("#record-test")).to_contain_text("waits for the instance")
                continue
            expect(page.get_by_role("dialog")).to_be_hidden()
    fold_stream.fold_stream("test")
    assert queries.application("test").state.failed == 1


@pytest.mark.long
def test_a_viewer_has_no_enabled_button(windows: Windows, story: Story) -> None:
    everything = user_actions(story)
    before = done()
    with windows.open("ben") as page:
        for url in {action.page for action in everything}:
            page.goto(url)
            # Each user saves filters, and has tokens of the own account.
            for button in page.locator("main button:enabled:not(#save-filter)").all():
                text = button.inner_text()
                form = button.locator(
                    f"xpath=ancestor::form[@method='post' and @action!='{reverse('create-token')}']"
                )
                assert form.count() == 0, (url, text)
                assert button.get_attribute("hx-get") is None, (url, text)
    assert done() == before
