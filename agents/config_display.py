"""Configuration for display: settings that look secret are omitted."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Names of settings whose values are never shown.
_SECRET = re.compile(
    r"password|passwd|passphrase|secret|token|credential|jaas|sasl\.|(^|[._-])(api)?key([._-]|$)",
    re.IGNORECASE,
)
#: The user information in a URL.
_USERINFO = re.compile(r"(?<=//)[^/@\s]+@")
#: Longer values are cut.
_VALUE_CHARACTERS = 1_000


def without_secrets(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings as texts, without those with a secret-looking name, and without
    user:password@.

    It goes by name: a secret under a harmless name is shown.
    """
    return {
        name: _USERINFO.sub("…@", str(value))[:_VALUE_CHARACTERS]
        for name, value in settings.items()
        if _SECRET.search(name) is None
    }
