"""Configuration as it may be shown: what looks secret is dropped, not masked."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Names of settings whose values nobody is shown.
_SECRET = re.compile(
    r"password|passwd|passphrase|secret|token|credential|jaas|sasl\.|(^|[._-])(api)?key([._-]|$)",
    re.IGNORECASE,
)
#: A URL with somebody's name and password in it.
_USERINFO = re.compile(r"(?<=//)[^/@\s]+@")
#: A longer value says nothing more to people.
_VALUE_CHARACTERS = 1_000


def without_secrets(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings as texts, without those whose name looks secret and without user:password@.

    It goes by names: a secret under a harmless name is shown.
    """
    return {
        name: _USERINFO.sub("…@", str(value))[:_VALUE_CHARACTERS]
        for name, value in settings.items()
        if _SECRET.search(name) is None
    }
