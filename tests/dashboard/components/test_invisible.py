"""Invisible and misleading characters on pages, and formulas in exports."""

from __future__ import annotations

import re

import pytest
from django.template import engines
from django.test import Client
from django.urls import reverse

from arrester.dashboard.pages import exports
from arrester.dashboard.text.invisible import visible_html
from tests.dashboard.exported_files import exported
from tests.dashboard.story import Story, failure


def test_invisible_characters_of_texts_are_escaped_on_all_pages(
    flights: Story, operator: Client
) -> None:
    hidden = failure("produce", "app.Hidden", "pay \u202e001\u202c \x1b[31m\x00 now")
    digest = flights.pauses("a\u2066b", cause=hidden).digest
    for url in (reverse("task", args=[digest]), reverse("errors"), reverse("tasks")):
        page = operator.get(url).content.decode()
        assert "\u202e" not in page and "\x1b" not in page, url
    assert r"pay \u202e001\u202c \u001b[31m" in operator.get(reverse("errors")).content.decode()
    [row] = operator.get("/api/v1/errors").json()["results"]
    assert "\u202e" in row["message"]
    assert "\u202e" in exported("/export/errors.jsonl", user="ana")


def test_tags_and_line_ends_stay() -> None:
    html = '<input value="\u202ea">\r\n\tא\u200fב\x85<b>👩‍👧</b>'
    shown = '<input value="\u202ea">\r\n\tא\\u200fב\\u0085<b>👩‍👧</b>'
    assert visible_html(html) == shown
    assert engines["django"].from_string("{{ a }}").render({"a": "<"}) == "&lt;"


def test_attributes_that_are_shown_are_escaped_and_others_stay() -> None:
    html = (
        '<b title="a\u202eb" data-title="\u202e" aria-label="\x1b" href="?key=\u202e"'
        ' placeholder="\u061c" value="\u202e">'
    )
    assert visible_html(html) == (
        '<b title="a\\u202eb" data-title="\u202e" aria-label="\\u001b" href="?key=\u202e"'
        ' placeholder="\\u061c" value="\u202e">'
    )


def test_task_keys_are_escaped_in_tooltips_and_labels(flights: Story, operator: Client) -> None:
    digest = flights.pauses("a\u2066b").digest
    shown = re.compile(r'\s(?:title|aria-[a-z]+)="[^"]*\u2066[^"]*"')
    pages = [operator.get(url).content.decode() for url in ("/", "/tasks", f"/tasks/{digest}")]
    assert [each for page in pages for each in shown.findall(page)] == []
    assert any(r"Select delays_a\u2066b" in page for page in pages)


@pytest.mark.parametrize(
    "text",
    [
        "=1",
        "+1",
        "-1",
        "@a",
        "\t=1",
        "\n=1",
        "\r=1",
        " =1",
        "\u3000=1",
        "\ufeff=1",
        "\x00=1",
        "\uff1d1",
    ],
)
def test_a_formula_in_a_cell_is_text(text: str) -> None:
    assert exports._cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a=1", "1-1", " a", "é", "1"])
def test_other_cells_stay(text: str) -> None:
    assert exports._cell(text) == text
