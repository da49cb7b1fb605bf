"""A web process on the test database, and the command line as an operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from redis import Redis

from arrester.cli.main import run
from arrester.controlplane import embedded
from tests.dashboard.accounts import token
from tests.dashboard.conftest import server
from tests.dashboard.story import Story, started_with_accounts

__all__ = ["server"]


class Output(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


Arrester = Callable[..., Output]


@pytest.fixture
def story(fresh_database: embedded.Urls, redis: Redis) -> Story:
    """Return an application whose pipeline runs, with a user of each role."""
    return started_with_accounts()


@pytest.fixture
def arrester(
    server: str,
    story: Story,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Arrester:
    """Return a function that runs a command as the operator ana, in this process."""
    for name in ("ARRESTER_PROFILE", "ARRESTER_URL", "ARRESTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ARRESTER_URL", server)
    monkeypatch.setenv("ARRESTER_TOKEN", token("ana", "laptop"))

    def call(*words: str) -> Output:
        capsys.readouterr()
        code = run(words)
        return Output(int(code), *capsys.readouterr())

    return call
