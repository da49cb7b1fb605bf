"""Encode and decode commands as JSON, as agents receive them from Redis."""

from __future__ import annotations

import msgspec

from arrester.domain.events import CommandIssued

_decoder = msgspec.json.Decoder(CommandIssued)


def encode_command(command: CommandIssued) -> bytes:
    """Return a command as agents receive it."""
    return msgspec.json.encode(command)


def decode_command(text: bytes) -> CommandIssued:
    """Return the command in `text`; raises ValueError if it is invalid."""
    return _decoder.decode(text)
