"""The numbers that pages, REST and metrics show, and which of them differ."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from django.test import Client

#: The pattern of a number on a page.
NUMBER = r"([\d,]+)"


class Numbers:
    """Numbers by what they count and of what, and each place that shows them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._shown: dict[str, dict[str, int]] = defaultdict(dict)

    def add(self, what: str, of: str, place: str, number: int) -> None:
        """Add a number that a place shows."""
        self._shown[f"{what} of {of}"][place] = number

    def add_found(self, what: str, of: str, place: str, pattern: str, text: str) -> None:
        """Add the first number that a pattern finds in the text of a page; 0 if it finds none."""
        found = re.search(pattern, text)
        self.add(what, of, place, whole(found[1]) if found else 0)

    def differences(self) -> list[str]:
        """Return a line for each thing that two places count differently."""
        return [
            f"{what}: " + ", ".join(f"{number:,} at {place}" for place, number in places.items())
            for what, places in self._shown.items()
            if len(set(places.values())) > 1
        ]

    @property
    def compared(self) -> int:
        """The number of shown numbers."""
        return sum(map(len, self._shown.values()))

    def html(self, url: str) -> str:
        """Return a page."""
        response = self._client.get(url)
        assert response.status_code == 200, (url, response.status_code)
        return response.content.decode()

    def json(self, url: str) -> Any:
        """Return a response of REST."""
        return json.loads(self.html(url))

    def rows(self, url: str) -> list[Any]:
        """Return the rows of all pages of a list of REST."""
        found: list[Any] = []
        cursor = None
        while True:
            more = {"limit": 500} | ({"cursor": cursor} if cursor else {})
            answer = self.json(f"{url}{'&' if '?' in url else '?'}{urlencode(more)}")
            found += answer["results"]
            cursor = answer["next"]
            if cursor is None:
                return found

    def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """Return the response of REST to a request that changes nothing."""
        response = self._client.post(url, body, content_type="application/json")
        assert response.status_code == 200, (url, response.status_code)
        return response.json()


def whole(text: str) -> int:
    """Return a number as pages show it."""
    return int(text.replace(",", ""))


def words(html: str) -> str:
    """Return the text of HTML with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())
