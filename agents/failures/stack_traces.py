"""Traces as the log has them: of each exception's message the first line, all frames."""

from __future__ import annotations

import re

#: Where a trace goes on after a message of Python's, or Java's.
_GOES_ON = re.compile(
    r'Traceback \(most recent|  File "|\t+at |\t+\.\.\. |\s*(Caused by|Suppressed): '
    r"|The above exception was the direct|During handling of the above"
)
#: Lines that are no exception with its message, by their beginnings.
_NO_MESSAGE = re.compile(r"\s|Traceback |The above |During handling |$")
#: How Python draws a group of exceptions: what is between two of them, and what is inside.
_OF_GROUP = re.compile(r" *(\+-[-+]*( \d+ -+)?$|\+ Exception Group Traceback )")
_INSIDE = re.compile(r" *\| ")


def with_first_lines(trace: str, exception_class: str) -> str:
    """Return a trace without what messages say after their first lines.

    That is all that is shown of a message elsewhere; the rest may quote the record. A trace of
    Python's may be cut at its beginning, and then begin within a message.
    """
    kept, in_message = [], not trace.startswith(exception_class)
    for line in trace.splitlines():
        plain = _INSIDE.sub("", line)
        if in_message and not _GOES_ON.match(plain) and not _OF_GROUP.match(line):
            continue
        kept.append(line)
        of_java = plain.lstrip().startswith(("Caused by: ", "Suppressed: "))
        in_message = of_java or not (_NO_MESSAGE.match(plain) or _OF_GROUP.match(line))
    return "\n".join(kept)
