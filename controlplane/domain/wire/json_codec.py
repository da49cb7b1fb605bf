"""Commands as JSON, as they are in Redis; events as JSON, as samples of them are kept."""

from __future__ import annotations

import msgspec

from arrester.controlplane.domain.events import CommandIssued, Event

_json = msgspec.json.Encoder()
_from_json = msgspec.json.Decoder(Event)
_command = msgspec.json.Decoder(CommandIssued)


def to_json(event: Event) -> bytes:
    """Return an event as JSON, as the journal encodes it."""
    return _json.encode(event)


def from_json(text: bytes | str) -> Event:
    """Return the event in `text`; raises msgspec.DecodeError if it is invalid."""
    return _from_json.decode(text)


def encode_command(command: CommandIssued) -> bytes:
    """Return a command as agents receive it."""
    return _json.encode(command)


def decode_command(text: bytes) -> CommandIssued:
    """Return the command in `text`; raises msgspec.DecodeError if it is invalid."""
    return _command.decode(text)
