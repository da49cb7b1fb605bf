"""The lines of the author's code around the one that raised."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from arrester.domain.events import SourceLines

#: Before and after the line.
AROUND: Final = 5
LINE_CHARACTERS: Final = 300
_FRAME: Final = re.compile(r"(.+):(\d+) in .+")


def source_lines(frame: str | None, stack: str | None) -> SourceLines | None:
    """Return the lines around a frame, `file.py:12 in function`; None if they are not readable.

    Only files of the driver's loaded modules outside of installed packages are read: a message may
    contain the path of any file. The line is the one that the stack trace has, if it has one.
    """
    found = _FRAME.fullmatch(frame or "")
    if found is None:
        return None
    name, number = found[1], int(found[2])
    traced = _traced_line(name, number, stack or "")
    texts = [lines for path in _files(name) if (lines := _lines(path)) and 0 < number <= len(lines)]
    texts = [lines for lines in texts if traced is None or lines[number - 1].strip() == traced]
    # Without a line to compare, one of several files of this name may be another one.
    if not texts or (traced is None and len(texts) > 1):
        return None
    first = max(1, number - AROUND)
    shown = texts[0][first - 1 : number + AROUND]
    return SourceLines(
        first=first, lines=tuple(line.rstrip("\n")[:LINE_CHARACTERS] for line in shown)
    )


def _files(name: str) -> Iterator[str]:
    """Yield the files of this name from which modules were loaded, or cells of a notebook."""
    libraries = tuple(sysconfig.get_path(each) for each in ("stdlib", "purelib", "platlib"))
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    # A notebook puts the text of its cells there, without the time of a file.
    cells = [path for path, entry in list(linecache.cache.items()) if entry[1:2] == (None,)]
    for path in dict.fromkeys([*loaded, *cells]):
        if not isinstance(path, str) or path.startswith(libraries):
            continue
        if PurePath(path).name == name:
            yield path


def _lines(path: str) -> list[str]:
    linecache.checkcache(path)
    try:
        return linecache.getlines(path)
    except Exception:  # of a loader
        return []


def _traced_line(name: str, number: int, stack: str) -> str | None:
    """Return the line that a stack trace has below a frame; None if it has none."""
    below = re.search(
        rf'File "(?:[^"\n]*/)?{re.escape(name)}", line {number}, in .*\n    (\S.*)$', stack, re.M
    )
    return None if below is None else below[1].strip()
