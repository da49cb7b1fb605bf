"""Checks of the web process and its settings."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import django
from django.conf import settings

from arrester import __version__
from arrester.controlplane.access import login_attempts
from arrester.controlplane.queries.operation.installation.finding import Finding, ok, warning

_LOCAL = {"127.0.0.1", "localhost", "[::1]"}


def versions() -> Iterator[Finding]:
    """Report the versions of the server."""
    python = platform.python_version()
    yield ok("server version", f"{__version__}, Python {python}, Django {django.get_version()}")


def settings_for_production() -> Iterator[Finding]:
    """Warn of settings for development, and of passwords without encryption."""
    environment = settings.ENVIRONMENT
    if environment.debug:
        advice = "Unset it: pages of errors show settings."
        yield warning("server ARRESTER_DEBUG", "1", advice)
    others = sorted({*environment.allowed_hosts} - _LOCAL)
    if others and not environment.https:
        advice = "Put a proxy with TLS in front, and set ARRESTER_HTTPS=1."
        yield warning("server ARRESTER_HTTPS", f"0 for {', '.join(others)}", advice)
    else:
        yield ok("server ARRESTER_HTTPS", f"{int(environment.https)}")
    if not login_attempts.address_is_known():
        advice = (
            "Set it to the number of proxies: wrong passwords then lock addresses out, too, and"
            " many log-ins of one address do not delay others."
        )
        yield warning("server ARRESTER_PROXIES", "0 with ARRESTER_HTTPS=1", advice)
