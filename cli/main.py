"""The entry point of the commands by REST: their help in groups, and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

import click

from arrester import __version__
from arrester.cli.command_names import MODULES, REST_COMMANDS, SERVER_COMMANDS
from arrester.cli.exit_codes import ExitCode

_INTERRUPTED = 130


class GroupedCommands(click.Group):
    """The commands; each module is imported on first use, which keeps the start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, for the help and for completion."""
        return [*MODULES, *SERVER_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        if cmd_name in SERVER_COMMANDS:
            return click.Command(cmd_name, short_help=SERVER_COMMANDS[cmd_name])
        if cmd_name not in MODULES:
            return None
        module = import_module(f"arrester.cli.commands.{MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each group."""
        for title, names in REST_COMMANDS.items():
            self._format(ctx, formatter, title, names)
        self._format(ctx, formatter, "On the server, with its database", SERVER_COMMANDS)
        formatter.write_paragraph()
        formatter.write_text("`arrester help COMMAND` has the options of a server command.")

    def _format(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
        title: str,
        names: dict[str, str],
    ) -> None:
        commands = {name: self.get_command(ctx, name) for name in names}
        rows = [(name, found.get_short_help_str(100)) for name, found in commands.items() if found]
        with formatter.section(title):
            formatter.write_dl(rows)


@click.group(
    cls=GroupedCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 refused, 2 usage, 3 not applied in time, 4 server unreachable.",
)
@click.version_option(__version__, message="%(version)s")
def arrester() -> None:
    """Arrester: the error control plane for PySpark."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; an error is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal may be unable to show a character of a record.
        getattr(stream, "reconfigure", _unchanged)(errors="backslashreplace")
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    try:
        code = arrester.main(
            args=["--help"] if words in ([], ["help"]) else words,
            prog_name="arrester",
            complete_var="_ARRESTER_COMPLETE",
            standalone_mode=False,
        )
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return _INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "arrester"
        _print_error(f"{error.format_message().rstrip('.')}; see `{command} --help`")
        return ExitCode.USAGE
    except click.ClickException as error:
        _print_error(error.format_message())
        return error.exit_code
    except BrokenPipeError:
        # The reader, such as `head`, has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    return code if isinstance(code, int) else ExitCode.DONE


def _print_error(message: str) -> None:
    click.echo(f"arrester: {' '.join(message.split())}", err=True)


def _unchanged(**_options: object) -> TextIO | None:
    return None
