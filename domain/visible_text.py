r"""Control characters, and characters that change the direction of text, as escapes: `\u202e`.

They could hide a part of a text, or show it in another order or in several lines.
"""

from __future__ import annotations

import re
from typing import Final

#: Tabs and line feeds are text.
CHARACTERS: Final = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
_INVISIBLE: Final = re.compile(CHARACTERS)


def has_invisible(text: str) -> bool:
    """Return whether a text has invisible or misleading characters."""
    return _INVISIBLE.search(text) is not None


def visible(text: str) -> str:
    """Return a text with invisible and misleading characters escaped."""
    return _INVISIBLE.sub(lambda found: escaped(found[0]), text)


def escaped(character: str) -> str:
    """Return a character as an escape."""
    return f"\\u{ord(character):04x}"
