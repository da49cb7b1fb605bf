"""Who a request is from, what that person may see and do, and the limits of log-ins."""

from __future__ import annotations

from arrester.controlplane.access.person import (
    SCHEMA,
    SETTING,
    Person,
    acting_on,
    acts,
    current,
    enter,
    is_confined,
    leave,
    lifted,
    on_connect,
    require,
)

__all__ = [
    "SCHEMA",
    "SETTING",
    "Person",
    "acting_on",
    "acts",
    "current",
    "enter",
    "is_confined",
    "leave",
    "lifted",
    "on_connect",
    "require",
]
