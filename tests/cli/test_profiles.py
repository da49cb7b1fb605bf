"""Profiles and variables, without a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from arrester.cli import profiles
from arrester.cli.connection import Connection, connection
from arrester.cli.exit_codes import InvalidInput
from arrester.cli.output import duration
from arrester.cli.values import seconds
from tests.services import REPOSITORY

OURS = profiles.Profile(url="http://ours:8000", token="a" * 40)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty folder for profiles, and no variables."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ARRESTER_PROFILE", "ARRESTER_URL", "ARRESTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def connect(**given: str) -> Connection:
    values: dict[str, str | None] = {"url": None, "token": None, "profile": None}
    return connection(**(values | given))


def test_options_precede_variables_and_variables_the_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiles.save("default", OURS)
    profiles.save("other", profiles.Profile(url="https://other", token="b" * 40))
    assert connect() == Connection(url=OURS.url, token=OURS.token, profile="default")
    assert connect(profile="other").url == "https://other"
    monkeypatch.setenv("ARRESTER_PROFILE", "other")
    assert connect().url == "https://other"
    assert connect(profile="default").url == OURS.url
    monkeypatch.setenv("ARRESTER_URL", "http://variable/")
    monkeypatch.setenv("ARRESTER_TOKEN", "c" * 40)
    assert connect() == Connection(url="http://variable", token="c" * 40)
    assert connect(url="http://option", token="d" * 40).url == "http://option"


def test_the_token_of_a_profile_is_sent_to_its_own_server_only() -> None:
    profiles.save("default", OURS)
    assert connect(url=OURS.url + "/").token == OURS.token
    with pytest.raises(InvalidInput, match="no token for http://theirs"):
        connect(url="http://theirs")


def test_a_profile_file_that_others_may_read_is_refused() -> None:
    path = profiles.save("default", OURS)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(InvalidInput, match=r"mode 640.*allowed: 600. Run `chmod 600"):
        connect()
    path.chmod(0o600)
    path.write_text("{")
    with pytest.raises(InvalidInput, match="is not valid"):
        connect()


def test_a_profile_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(InvalidInput, match=r"profiles\.json cannot be"):
        profiles.save("default", OURS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no URL and no token: run `arrester login`"),
        ({"profile": "prod"}, "profile 'prod' is unknown; known: none"),
        ({"url": "localhost:8000", "token": "a"}, "URL 'localhost:8000' is not allowed"),
        ({"url": "http://x:y", "token": "a"}, "URL 'http://x:y' is not allowed"),
        ({"url": "http://x", "token": "a b"}, "token is not allowed"),
    ],
)
def test_a_missing_or_wrong_setting_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        connect(**given)
    assert message in raised.value.message


def test_durations_are_read_and_written() -> None:
    assert [seconds(text) for text in ("90", "90s", "10m", "1h 30m", "2d")] == [
        90, 90, 600, 5400, 172_800,
    ]  # fmt: skip
    assert [duration(each) for each in (0, 45, 303, 7800, 90_000)] == [
        "0s", "45s", "5m 3s", "2h 10m", "1d 1h",
    ]  # fmt: skip


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_start_imports_no_server_and_a_missing_package_is_one_line() -> None:
    server = "'django', 'celery', 'redis', 'psycopg', 'pyspark'"
    start = "import sys; sys.argv = ['arrester', 'status', '--help']; from arrester import __main__"
    loaded = f"print([name for name in ({server}) if name in sys.modules])"
    out = run(f"{start}\ntry: __main__.main()\nexcept SystemExit: {loaded}")
    assert out.splitlines()[-1] == "[]"
    for package in ("click", "rich"):
        missing = run(f"import sys; sys.modules['{package}'] = None; {start}; __main__.main()")
        assert missing.startswith(f"Python package '{package}'")
        assert missing.endswith("Install the command line: pip install 'arrester[cli]'\n")
        assert missing.count("\n") == 1
