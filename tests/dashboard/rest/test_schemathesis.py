"""REST keeps its OpenAPI document: all checks of schemathesis, by each role, through HTTP.

The long runs leave no check out. `schemathesis_hooks` has the valid requests that REST may refuse.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from arrester.controlplane.access.roles import Role, TokenScope
from arrester.controlplane.models import RestToken
from arrester.dashboard.rest import schema
from tests.dashboard import every_page
from tests.dashboard.accounts import grant, make_user, token
from tests.dashboard.browser import web
from tests.dashboard.rest.schemathesis_hooks import OWN_TOKENS
from tests.dashboard.story import Story
from tests.services import REPOSITORY

ANONYMOUS, CONFINED, READ = "anonymous", "confined", "read"
ROLES = [ANONYMOUS, READ, CONFINED, *(role.value for role in Role)]
#: Texts with NUL are refused; the document does not have it at each text.
ALWAYS = ["--checks", "all", "--no-color", "--continue-on-failure", "--generation-allow-x00=false"]
#: Nearly the same requests in each run: they have ids of earlier answers. Whether a valid request
#: is refused depends on the data, so only the long runs check it.
SHORT = ["--phases", "fuzzing", "--max-examples", "3", "--generation-deterministic"]
SHORT += ["--exclude-checks", "positive_data_acceptance"]
LONG = ["--phases", "coverage,fuzzing,stateful", "--max-examples", "30", "--no-shrink"]


class Server(NamedTuple):
    """A web process, the tokens of its accounts by role, and their ids."""

    url: str
    tokens: dict[str, str]
    ids: str


@pytest.fixture(scope="module")
def unlimited(shared_data: None) -> Iterator[Server]:
    """Run a web process without a limit of requests, with all kinds of states."""
    story = Story()
    story.starts()
    every_page.build(story)
    for role in Role:
        make_user(role.value, role.value)
    make_user(CONFINED)
    grant(CONFINED, {"flights": Role.OPERATOR})
    tokens = {name: token(name) for name in (CONFINED, *(role.value for role in Role))}
    tokens[READ] = token(Role.ADMIN.value, READ, scope=TokenScope.READ)
    ids = " ".join(map(str, RestToken.objects.values_list("id", flat=True)))
    with web(application="tests.dashboard.unlimited_asgi:application") as url:
        yield Server(url, tokens, ids)


def check(server: Server, role: str, options: list[str], folder: Path) -> None:
    """Run schemathesis by a role."""
    document = folder / "openapi.json"
    document.write_text(json.dumps(schema._document()))
    command: list[str | Path] = [Path(sys.executable).with_name("schemathesis"), "run", document]
    command += ["--url", server.url, *ALWAYS, *options]
    if role != ANONYMOUS:
        command += ["--header", f"Authorization: Bearer {server.tokens[role]}"]
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "SCHEMATHESIS_HOOKS": "tests.dashboard.rest.schemathesis_hooks",
        OWN_TOKENS: server.ids,
    }
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("role", [Role.ADMIN.value, pytest.param(CONFINED, marks=pytest.mark.long)])
def test_some_requests_are_answered_as_documented(
    unlimited: Server, role: str, tmp_path: Path
) -> None:
    check(unlimited, role, SHORT, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_all_requests_are_answered_as_documented(
    unlimited: Server, role: str, tmp_path: Path
) -> None:
    check(unlimited, role, LONG, tmp_path)
