"""Encode and decode commands as JSON, as agents receive them from Redis."""

from __future__ import annotations

import msgspec

from arrester.controlplane.domain.events import CommandIssued

#: The version of the commands that an agent knows, and its name in the versions of an instance.
#: 1: agents of 0.2.0, which do not report it. 2: RESTART_PIPELINE, SHUT_DOWN_INSTANCE, forced
#: shutdowns. 3: REDRIVE_RECORDS. 4: MEND_RECORD. An agent counts commands that it does not know as
#: invalid entries.
VERSION, REPORTED_AS = 4, "commands"

_decoder = msgspec.json.Decoder(CommandIssued)


def encode_command(command: CommandIssued) -> bytes:
    """Return a command as agents receive it."""
    return msgspec.json.encode(command)


def decode_command(text: bytes) -> CommandIssued:
    """Return the command in `text`; raises ValueError if it is invalid."""
    return _decoder.decode(text)
