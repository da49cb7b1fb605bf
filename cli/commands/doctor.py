"""Check the installation of a server, and this machine against it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from arrester import __version__
from arrester.cli import output
from arrester.cli.client import Json
from arrester.cli.exit_codes import ExitCode
from arrester.cli.session import Session, with_session
from arrester.domain.python_versions import UTC

FINDING_COLUMNS: tuple[output.Column, ...] = (
    ("LEVEL", "level"),
    ("CHECK", "check"),
    ("VALUE", "value"),
    ("ADVICE", "advice"),
)
_LEVELS = ("error", "warning", "ok")
_CLOCK_SECONDS = 5.0


@click.command()
@with_session
def doctor(session: Session) -> ExitCode:
    """Check an installation: versions, migrations, rights, clocks, disks, lag, agents.

    Exit code 1 if there is an error. It needs the role operator.
    """
    before = datetime.now(UTC)
    found = session.client.get("installation")
    after = datetime.now(UTC)
    own = _own_findings(found, before + (after - before) / 2)
    session.print(found, lambda found: _show([*found["findings"], *own]))
    has_error = any(each["level"] == "error" for each in found["findings"])
    return ExitCode.REFUSED if has_error else ExitCode.DONE


def _show(findings: list[Json]) -> None:
    findings.sort(key=lambda each: _LEVELS.index(each["level"]))
    output.print_table(findings, FINDING_COLUMNS, empty="no checks")
    counts = {level: sum(each["level"] == level for each in findings) for level in _LEVELS}
    click.echo(f"{counts['error']} errors, {counts['warning']} warnings, {counts['ok']} ok")


def _own_findings(found: Json, now: datetime) -> list[dict[str, Any]]:
    """Return the findings about this machine."""
    # Without a negative zero.
    ahead = round((now - output.parsed(found["read_at"])).total_seconds(), 1) + 0.0
    clock = {"check": "client clock", "value": f"{ahead:+.1f} s to the server"}
    clock |= {"level": "ok", "advice": ""}
    if abs(ahead) > _CLOCK_SECONDS:
        clock |= {"level": "warning", "advice": "Synchronise the clocks by NTP."}
    version = {"check": "client version", "value": __version__, "level": "ok", "advice": ""}
    if __version__ != found["version"]:
        advice = f"Install arrester=={found['version']} for the commands of this server."
        version |= {"level": "warning", "advice": advice}
    return [clock, version]
