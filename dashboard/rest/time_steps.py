"""The equal steps of time of a series, as parameters."""

from __future__ import annotations

from datetime import datetime, timedelta

from rest_framework import serializers

from arrester.dashboard.rest.field_types import MomentField
from arrester.dashboard.rest.struct_serializers import FilterSerializer
from arrester.domain.errors import InvalidValue

_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
#: The most steps of a series, and of one whose step is not given: as a chart has.
_STEPS, _DEFAULT_STEPS = 1500, 240
#: The default is the smallest of these that gives no more steps, or the last one, in seconds.
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
        f" {_DEFAULT_STEPS} steps.",
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
    seconds = step or _default(until - since)
    if seconds % 60:
        raise InvalidValue("step", step, "60 to 604800 seconds, a multiple of 60")
    length = timedelta(seconds=seconds)
    unit = _HOUR if seconds % 3600 == 0 else _MINUTE
    begin = since.replace(second=0, microsecond=0)
    begin = begin.replace(minute=0) if unit is _HOUR else begin
    if (until - begin) / length > _STEPS + 1:
        if step is None:
            days = (_STEPS * length).days
            raise InvalidValue("since", since, f"a time at most {days:,} days before until")
        raise InvalidValue(
            "step", step, f"a longer step, or a shorter time: at most {_STEPS:,} of them"
        )
    return begin, until, length


def _default(time: timedelta) -> int:
    fitting = (each for each in _DEFAULTS if time.total_seconds() / each <= _DEFAULT_STEPS)
    return next(fitting, _DEFAULTS[-1])
