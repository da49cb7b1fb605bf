"""Stack traces for the log: all frames, but only the first line of each message."""

from __future__ import annotations

import re

#: Where a stack trace continues after a message, in Python or Java.
_GOES_ON = re.compile(
    r'Traceback \(most recent|  File "|\t+at |\t+\.\.\. |\s*(Caused by|Suppressed): '
    r"|The above exception was the direct|During handling of the above"
)
#: The beginnings of lines that contain no exception message.
_NO_MESSAGE = re.compile(r"\s|Traceback |The above |During handling |$")
#: Python's lines between and inside the members of an exception group.
_OF_GROUP = re.compile(r" *(\+-[-+]*( \d+ -+)?$|\+ Exception Group Traceback )")
_INSIDE = re.compile(r" *\| ")


def with_first_lines(trace: str, exception_class: str) -> str:
    """Return a stack trace with only the first line of each message.

    No other place shows more of a message, because the rest may quote the record. The beginning of
    a Python stack trace may be cut, possibly inside a message.
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
