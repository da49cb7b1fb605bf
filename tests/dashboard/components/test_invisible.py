"""Invisible and misleading characters on pages, and formulas in exports."""

from __future__ import annotations

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
    [row] = operator.get("/api/errors").json()["results"]
    assert "\u202e" in row["message"]
    assert "\u202e" in exported("/export/errors.jsonl", user="ana")


def test_tags_and_line_ends_stay() -> None:
    html = '<input value="\u202ea">\r\n\tא\u200fב\x85<b title="\x00">👩‍👧</b>'
    shown = '<input value="\u202ea">\r\n\tא\\u200fב\\u0085<b title="\x00">👩‍👧</b>'
    assert visible_html(html) == shown
    assert engines["django"].from_string("{{ a }}").render({"a": "<"}) == "&lt;"


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
