"""The fingerprint of an error group: which failed records have the same cause."""

from __future__ import annotations

import hashlib
import re

VERSION = 2
#: Without an innermost cause and a field, version 2 equals version 1 and has its number, so that
#: these groups continue.
WITHOUT_CAUSE = 1
#: The characters of a normalised message that count.
MESSAGE_LIMIT = 500

#: What differs by record in a message, and the word in its place.
NORMALISATIONS = [
    (re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{4,}"), "<uuid>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<hex>"),
    (re.compile(r"'[^']*'|\"[^\"]*\""), "<text>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<number>"),
    (re.compile(r"\s+"), " "),
]


def normalised(message: str) -> str:
    """Return `message` without the parts that differ by record: numbers, quoted texts, ids."""
    for pattern, word in NORMALISATIONS:
        message = pattern.sub(word, message)
    return message.strip()[:MESSAGE_LIMIT]


def fingerprint(
    *,
    stage: str,
    exception_class: str,
    condition: str | None,
    frame: str | None,
    message: str,
    inner_class: str | None = None,
    inner_condition: str | None = None,
    field: str | None = None,
) -> str:
    """Return the identity of a cause: the algorithm's version, `-`, and 16 hexadecimal digits.

    The cause is the stage, Spark's error condition or else the exception's class, and the top frame
    in the user's code. Without a frame and a condition, the normalised message is included. An
    innermost cause and the field that Spark names are included if there are any.
    """
    where = frame or ("" if condition else normalised(message))
    parts, version = [stage, condition or exception_class, where], WITHOUT_CAUSE
    if inner_class or field:
        parts += [inner_condition or inner_class or "", field or ""]
        version = VERSION
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{version}-{digest[:16]}"
