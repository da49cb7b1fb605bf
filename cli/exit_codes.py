"""The exit codes of `arrester`, and the errors that lead to them; each message is one line."""

from __future__ import annotations

from enum import IntEnum

import click


class ExitCode(IntEnum):
    """The exit codes; scripts may depend on them."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    NOT_APPLIED = 3
    UNREACHABLE = 4


class Refused(click.ClickException):
    """The server refuses the request, or a thing does not exist; `status` is the HTTP status."""

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class InvalidInput(click.ClickException):
    """An argument, a setting or a value is missing or not allowed."""

    exit_code = ExitCode.USAGE


class NotApplied(click.ClickException):
    """A command was not applied in time."""

    exit_code = ExitCode.NOT_APPLIED


class Unreachable(click.ClickException):
    """The server does not answer, or one of its own servers does not."""

    exit_code = ExitCode.UNREACHABLE
