"""The quotas of applications: the agents of one above a quota report counts only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from arrester.domain.errors import InvalidValue
from arrester.domain.identity.names import NAME

#: The largest value of a quota.
_MOST = 10**12


class Quota(StrEnum):
    """What an application may have or send."""

    EVENTS = "events"
    GROUPS = "groups"
    TASKS = "tasks"
    PIPELINES = "pipelines"
    INSTANCES = "instances"
    REDIS_MB = "redis_mb"
    CONNECTIONS = "connections"

    @property
    def unit(self) -> str:
        """What is counted, in words."""
        return _UNITS[self]


_UNITS = {
    Quota.EVENTS: "events in a minute",
    Quota.GROUPS: "error groups",
    Quota.TASKS: "tasks",
    Quota.PIPELINES: "pipelines",
    Quota.INSTANCES: "instances that did not end",
    Quota.REDIS_MB: "MB in Redis",
    Quota.CONNECTIONS: "connections to Redis",
}
#: Far above what the pipelines of one application need.
DEFAULTS: Mapping[Quota, int] = {
    Quota.EVENTS: 5_000_000,
    Quota.GROUPS: 20_000,
    Quota.TASKS: 2_000_000,
    Quota.PIPELINES: 1_000,
    Quota.INSTANCES: 1_000,
    Quota.REDIS_MB: 300,
    Quota.CONNECTIONS: 2_000,
}
RULE = (
    "values separated by commas, as in `groups=50000,flights:tasks=5000000`, of"
    f" {', '.join(DEFAULTS)}"
)


class Quotas(msgspec.Struct, frozen=True):
    """The quotas of all applications, and those of single ones."""

    common: Mapping[Quota, int]
    own: Mapping[tuple[str, Quota], int]

    def of(self, application: str) -> dict[Quota, int]:
        """Return the quotas of an application."""
        return {each: self.own.get((application, each), self.common[each]) for each in DEFAULTS}

    def least(self, quota: Quota) -> int:
        """Return the smallest value that an application has."""
        own = (value for (_, each), value in self.own.items() if each is quota)
        return min((self.common[quota], *own))


def parse(text: str) -> Quotas:
    """Return the quotas in a text; raise InvalidValue."""
    common, own = dict(DEFAULTS), {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.partition("=")
        application, _, quota = name.strip().rpartition(":")
        value = value.strip()
        is_number = value.isdecimal() and 0 < int(value[:13]) <= _MOST and len(value) <= 13
        if (
            quota not in [*Quota]
            or not is_number
            or not (application == "" or NAME.fullmatch(application))
        ):
            raise InvalidValue("quota", part, RULE)
        if application:
            own[application, Quota(quota)] = int(value)
        else:
            common[Quota(quota)] = int(value)
    return Quotas(common, own)
