"""A masked value of a record is on no page and in no answer of REST."""

from __future__ import annotations

import json

from django.test import Client
from django.urls import reverse

from arrester.agents.failures.payload import Redaction
from tests.dashboard.story import Story, failure

SECRET = "4711'0815"
REDACTION = Redaction(drop=("card", "p?n", "$.trip.who"), builtin=("token",))


def test_a_masked_value_is_on_no_page_and_not_in_rest(flights: Story, operator: Client) -> None:
    row = {
        "Card_no": SECRET,
        "trip": {"who": f"{SECRET}-who", "city": "open city"},
        "many": [{"pin": f"x{SECRET}"}],
        "payload": json.dumps({"access_token": f"{SECRET}-99", "open": "open text"}),
    }
    message = f"refused {SECRET}-99, {SECRET}-who and {SECRET}: {row}"
    body = REDACTION.body(row, stack=f"ValueError: {message}")
    [text] = REDACTION.texts(row, message)
    assert text is not None and body.record is not None
    cause = failure("process:charge", "ValueError", text)
    task = flights.pauses("JFK", cause=cause, record=body.record, stack=str(body.stack))

    pages = ["overview", "applications", "tasks", "errors", "held", "audit", "instances"]
    urls = [reverse(page) for page in pages]
    urls += [
        reverse("application", args=["flights"]),
        reverse("task", args=[task.digest]),
        reverse("task-history", args=[task.digest]),
        reverse("error", args=["flights", cause.fingerprint]),
        reverse("skip-dialog", args=[task.digest]),
        *(f"/api/v1/{name}" for name in ("failures", "errors", "tasks", "held", "feed")),
        f"/api/v1/tasks/{task.digest}",
    ]
    answers = {}
    for url in urls:
        response = operator.get(url)
        # The stream of the feed does not end.
        answers[url] = "" if response.streaming else response.content.decode()
        assert response.status_code == 200, url
        assert "4711" not in answers[url], url
    assert "open city" in answers[reverse("task", args=[task.digest])]
    assert "open text" in answers["/api/v1/failures"]
