"""Refused requests: no traceback in the log, and an answer to each method."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils.module_loading import import_string


@pytest.fixture
def log() -> Iterator[StringIO]:
    """Return what the handler of the settings writes."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    logging_settings: Any = settings.LOGGING
    for name in logging_settings["handlers"]["stderr"]["filters"]:
        handler.addFilter(import_string(logging_settings["filters"][name]["()"])())
    logger = logging.getLogger("django.request")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def test_a_refused_request_is_one_line_of_the_log(viewer: Client, log: StringIO) -> None:
    assert viewer.post(reverse("test-error")).status_code == 403
    assert log.getvalue() == "Forbidden (Permission denied): /test-error\n"


def test_a_fault_of_the_server_has_its_traceback(log: StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("django.request").exception("fault", extra={"status_code": 500})
    assert "Traceback" in log.getvalue()


def test_options_of_the_documentation_are_refused(viewer: Client) -> None:
    assert viewer.options("/api/v1/docs/").status_code == 405
    assert viewer.get("/api/v1/docs/").status_code == 200
