"""The address of a client, also of one behind reverse proxies."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

UNKNOWN: Final = "an unknown address"


def client_address(forwarded_for: str, peer: str, *, proxies: int) -> str:
    """Return the address of the client; behind reverse proxies the one that they report.

    Each proxy adds the address that it sees to X-Forwarded-For. What the client itself has put
    there is before those, and ignored.
    """
    hops = [each.strip() for each in forwarded_for.split(",")]
    address = hops[-proxies] if proxies and len(hops) >= proxies else peer
    try:
        return str(ip_address(address))
    except ValueError:
        return UNKNOWN
