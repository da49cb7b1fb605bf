"""The text formats of metrics, and which of them an `Accept` header prefers.

`prometheus_client` chooses a format itself, but ignores `q` and claims any version that is asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.http.request import MediaType
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

#: The schemes that leave our names unchanged: they have letters and underscores only.
_UNCHANGED: Final = (openmetrics.UNDERSCORES, openmetrics.ALLOWUTF8, openmetrics.VALUES)


class Format(NamedTuple):
    """A format that `/metrics` gives."""

    media_type: str
    version: str
    encode: Callable[[Collector], bytes]
    #: Whether its content type names how other characters of names are escaped.
    escapes: bool = True

    def content_type(self, escaping: str = openmetrics.UNDERSCORES) -> str:
        """Return the value of the header."""
        text = f"{self.media_type}; version={self.version}; charset=utf-8"
        return f"{text}; escaping={escaping}" if self.escapes else text


#: The first one is the answer if any is accepted, or none.
FORMATS: Final = (
    Format("text/plain", "0.0.4", exposition.generate_latest, escapes=False),
    Format("text/plain", "1.0.0", exposition.generate_latest),
    Format("application/openmetrics-text", "1.0.0", openmetrics.generate_latest),
)


class _Range(NamedTuple):
    """A part of an `Accept` header."""

    place: int
    media: MediaType

    def parameter(self, name: str) -> str | None:
        """Return a parameter of this part, such as its version."""
        # The types of Django have bytes.
        params: Mapping[str, Any] = self.media.params
        return params.get(name)

    def precision(self, format: Format) -> int:
        """Return how precisely this part names a format; 0: another one."""
        main_type, _, sub_type = format.media_type.partition("/")
        version = self.parameter("version")
        match (self.media.main_type, self.media.sub_type):
            case ("*", "*"):
                return 1
            case (main, "*") if main == main_type:
                return 2
            case (main, sub) if (main, sub) == (main_type, sub_type):
                return 3 if version is None else 4 if version == format.version else 0
        return 0


def preferred(accept: str) -> tuple[Format, str]:
    """Return the format that an `Accept` header prefers, and its content type.

    A format without a match is never chosen, unless no format has one: clients of Prometheus expect
    an answer in any case.
    """
    ranges = [_Range(place, MediaType(each)) for place, each in enumerate(accept.split(","))]
    found = [
        (-best.media.quality, best.place, number, best)
        for number, format in enumerate(FORMATS)
        if (best := _best(ranges, format)) is not None and best.media.quality > 0
    ]
    if not found:
        return FORMATS[0], FORMATS[0].content_type()
    *_, number, best = min(found, key=lambda each: each[:3])
    format = FORMATS[number]
    asked = best.parameter("escaping")
    return format, format.content_type(asked if asked in _UNCHANGED else openmetrics.UNDERSCORES)


def _best(ranges: Sequence[_Range], format: Format) -> _Range | None:
    """Return the most precise part that names a format, the first one of several."""
    matching = [each for each in ranges if each.precision(format)]
    return max(matching, key=lambda each: (each.precision(format), -each.place), default=None)
