"""The server of a command: its URL and token from options, variables or a profile."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from arrester.cli import profiles
from arrester.cli.exit_codes import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A server and a token; `profile` is the name of the profile that has the token, if one has."""

    url: str
    token: str
    profile: str | None = None


def connection(*, url: str | None, token: str | None, profile: str | None) -> Connection:
    """Return the connection: options, then variables, then the profile.

    Raises:
        InvalidInput: the URL or the token is missing or not valid.
    """
    url = url or os.environ.get("ARRESTER_URL")
    token = token or os.environ.get("ARRESTER_TOKEN")
    if url and token:
        return Connection(url=checked_url(url), token=checked_token(token))
    name = profile_name(profile)
    known = profiles.load()
    if name not in known:
        raise InvalidInput(_missing(name, known, url=url, token=token))
    found = known[name]
    if url and checked_url(url) != found.url:
        raise InvalidInput(
            f"no token for {url}: profile {name!r} is for {found.url}. Set ARRESTER_TOKEN,"
            f" or run `arrester login --url {url} --profile NAME`"
        )
    if token:
        return Connection(url=found.url, token=checked_token(token))
    return Connection(url=found.url, token=found.token, profile=name)


def profile_name(given: str | None) -> str:
    """Return the name of the profile: the option, the variable, or the default."""
    return given or os.environ.get("ARRESTER_PROFILE") or profiles.DEFAULT


def checked_url(url: str) -> str:
    """Return a URL without a slash at its end; raise InvalidInput unless it is one of HTTP."""
    allowed = "a URL that starts with http:// or https://, such as http://127.0.0.1:8000"
    try:
        parts = urlsplit(url.strip())
        _ = parts.port  # raises ValueError unless it is a number
    except ValueError:
        raise InvalidInput(f"URL {url!r} is not allowed; allowed: {allowed}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise InvalidInput(f"URL {url!r} is not allowed; allowed: {allowed}")
    return url.strip().rstrip("/")


def checked_token(token: str) -> str:
    """Return a token that a header can contain; raise InvalidInput."""
    token = token.strip()
    if not token or not token.isascii() or not token.replace("_", "").isalnum():
        raise InvalidInput("token is not allowed; allowed: a token of an account, arrester_…")
    return token


def _missing(name: str, known: profiles.Profiles, *, url: str | None, token: str | None) -> str:
    if known or name != profiles.DEFAULT:
        names = ", ".join(sorted(known)) or "none, create one with `arrester login`"
        return f"profile {name!r} is unknown; known: {names}"
    missing = [each for each, value in (("URL", url), ("token", token)) if not value]
    return (
        f"no {' and no '.join(missing)}: run `arrester login`, or set ARRESTER_URL and"
        " ARRESTER_TOKEN"
    )
