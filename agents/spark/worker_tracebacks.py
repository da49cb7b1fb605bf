"""Failures of Python workers, read from the texts that Spark makes of them.

An exception of a worker stays on its executor: the driver gets a text with its traceback.
"""

from __future__ import annotations

import builtins
import re
import sys
import sysconfig
from typing import Final

from arrester.agents.spark.errors import WORKER_CRASHED, Problem
from arrester.agents.worker.progress import PROGRESS
from arrester.domain.error_policy.exception_identity import CONFLUENT, Cause

MESSAGE_CHARACTERS: Final = 4_000
STACK_CHARACTERS: Final = 16_000
_TRACEBACK = "Traceback (most recent call last):"
_CRASHED = "Python worker exited unexpectedly"
#: The text of a job's exception, which repeats that of its failed task.
_ABORTED = "Job aborted due to stage failure"
#: Spark appends this to the message of Python's exception.
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
#: The progress that a worker recorded.
_RECORDED_PROGRESS = re.compile(rf"{PROGRESS} (\d+) ([01])")
#: The text of a confluent_kafka.KafkaException, with the error code.
_KAFKA_ERROR = re.compile(r"KafkaError\{(?:FATAL,)?code=(\w+),")
_FRAME = re.compile(r'File "([^"]+)", line (\d+),? in (.+)')


def failed_in_python(exc: BaseException) -> bool:
    """Whether a job failed in Python, by an exception or a crash."""
    text = str(exc)
    return _TRACEBACK in text or _CRASHED in text


def rank_at_crash(exc: BaseException) -> tuple[int, bool] | None:
    """Return the rank of the row in a crashed worker, if the worker recorded it.

    The second value is whether the rows before it need no repetition. Rank 0 means no row.
    """
    progress = _RECORDED_PROGRESS.search(str(exc))
    return None if progress is None else (int(progress[1]), progress[2] == "1")


def is_of_job(message: str) -> bool:
    """Whether a message is that of a job, which repeats the message of its failed task."""
    return _ABORTED in message


def crash_in(message: str) -> Problem | None:
    """Return the crash that a task's message reports, None if it reports none."""
    if _CRASHED not in message or is_of_job(message):
        return None
    # The stack trace of Python's fault handler, if it is on.
    trace = _RECORDED_PROGRESS.sub("", message.partition("): ")[2]).strip()
    first = trace.splitlines()[0] if trace else "it was killed, or ended by itself"
    return Problem(
        exception_class=WORKER_CRASHED,
        message=f"the Python worker crashed: {first}",
        stack=trace[:STACK_CHARACTERS] or None,
        frame=_user_frame(_FRAME.findall(trace)),
        cause=Cause(names=(WORKER_CRASHED,)),
    )


def exception_in(message: str) -> Problem | None:
    """Return the Python exception that a task's message reports, None if it reports none."""
    return None if is_of_job(message) else exception_traced_in(message)


def exception_traced_in(text: str) -> Problem | None:
    """Return the Python exception of the traceback in a text, None if the text has no traceback."""
    if _TRACEBACK not in text:
        return None
    trace = _SQLSTATE.sub("", text[text.index(_TRACEBACK) :])
    lines = trace[trace.rindex(_TRACEBACK) :].splitlines()[1:] or [""]
    # Lines of frames are indented. The first other line has the class and the message.
    at = next((n for n, line in enumerate(lines) if not line.startswith(" ")), len(lines) - 1)
    name, _, first = lines[at].partition(": ")
    error = _KAFKA_ERROR.match(first) if name.endswith("KafkaException") else None
    codes = () if error is None else (f"{CONFLUENT}{error[1]}",)
    return Problem(
        exception_class=name,
        message="\n".join([first, *lines[at + 1 :]]).strip()[:MESSAGE_CHARACTERS],
        stack=trace[-STACK_CHARACTERS:],
        frame=_user_frame(_FRAME.findall(trace)[::-1]),
        cause=Cause(names=(*codes, *_class_and_bases(name))),
    )


def _class_and_bases(name: str) -> tuple[str, ...]:
    """Return the names of a class and its bases, if the driver has the class."""
    module, _, short = name.rpartition(".")
    kind = getattr(sys.modules.get(module, builtins) if module else builtins, short, None)
    if not isinstance(kind, type):
        return (name,)
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__[:-1])


def _user_frame(frames: list[tuple[str, str, str]]) -> str | None:
    """Return the first frame outside of installed packages, else the first one.

    The innermost frame comes first.
    """
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    outside = [
        frame
        for frame in frames
        if not frame[0].startswith((*libraries, "<frozen")) and "pyspark.zip/" not in frame[0]
    ]
    for path, line, name in [*outside, *frames][:1]:
        return f"{path.rpartition('/')[2]}:{line} in {name}"
    return None
