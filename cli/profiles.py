"""Profiles: the URL and the token of a server, by name, in a file that only its owner can read."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from arrester.cli.exit_codes import InvalidInput

DEFAULT = "default"


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address of a server, and the token of an account."""

    url: str
    token: str


Profiles = dict[str, Profile]


def file() -> Path:
    """Return the path of the profile file, per the XDG Base Directory Specification."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "arrester" / "profiles.json"


def load() -> Profiles:
    """Return all profiles by name; empty without a file.

    Raises:
        InvalidInput: other users can read the file, or it is not valid.
    """
    path = file()
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(f"profile file {path} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise InvalidInput(
            f"profile file {path} has mode {mode & 0o777:o}, so other users may read its tokens;"
            f" allowed: 600. Run `chmod 600 {path}`, and replace the tokens"
        )
    try:
        return msgspec.json.decode(content, type=Profiles)
    except ValueError as error:
        raise InvalidInput(f"profile file {path} is not valid: {error}") from None


def save(name: str, profile: Profile) -> Path:
    """Store a profile, atomically and with mode 600; return the path of the file.

    Raises:
        InvalidInput: the file cannot be written, or is not valid.
    """
    path = file()
    content = msgspec.json.encode(load() | {name: profile})
    try:
        _write(path, msgspec.json.format(content, indent=2) + b"\n")
    except OSError as error:
        raise InvalidInput(f"profile file {path} cannot be written: {error.strerror}") from None
    return path


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    # Never readable for others, not even for a moment.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    new.replace(path)
