"""The equal steps of time of a series, as parameters."""

from __future__ import annotations

from datetime import datetime, timedelta

from rest_framework import serializers

from arrester.dashboard.rest.field_types import MomentField
from arrester.dashboard.rest.struct_serializers import FilterSerializer
from arrester.domain.errors import InvalidValue

_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
#: The most steps of a series.
_STEPS = 1500
#: The default is the smallest of these that gives no more steps, in seconds.
_DEFAULTS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)


class StepsQuerySerializer(FilterSerializer):
    """The time of a series: by default the last hour by minutes."""

    since = MomentField(required=False)
    until = MomentField(required=False)
    step = serializers.IntegerField(
        required=False,
        min_value=60,
        max_value=7 * 86_400,
        help_text="Seconds, a multiple of 60; by default a minute, or more for at most"
        f" {_STEPS:,} steps.",
        error_messages=dict.fromkeys(
            ("invalid", "min_value", "max_value"), "60 to 604800 seconds, a multiple of 60"
        ),
    )


def steps(
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    step: int | None = None,
) -> tuple[datetime, datetime, timedelta]:
    """Return the time and the step of a series; raise InvalidValue."""
    until = until or now
    since = since or until - _HOUR
    if since >= until:
        raise InvalidValue("since", since, f"a time before {until.isoformat()}")
    if step is None:
        seconds = (until - since).total_seconds()
        step = next((each for each in _DEFAULTS if seconds / each <= _STEPS), None)
    if step is None:
        longest = timedelta(seconds=_STEPS * _DEFAULTS[-1])
        raise InvalidValue("since", since, f"a time at most {longest.days:,} days before until")
    if step % 60:
        raise InvalidValue("step", step, "60 to 604800 seconds, a multiple of 60")
    length = timedelta(seconds=step)
    unit = _HOUR if step % 3600 == 0 else _MINUTE
    begin = since.replace(second=0, microsecond=0)
    begin = begin.replace(minute=0) if unit is _HOUR else begin
    if (until - begin) / length > _STEPS + 1:
        raise InvalidValue("step", step, f"a longer step: at most {_STEPS:,} of them")
    return begin, until, length
