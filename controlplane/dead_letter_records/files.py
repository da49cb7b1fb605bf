"""Find the record of a dead letter in a folder of files, which an event names.

Anyone who can send events names such folders, so only those below the configured roots are read,
links are not followed, and a row must have the application and the id.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from arrester.controlplane.domain.errors import ArresterError

FORMATS: Final = ("parquet", "orc", "json")
#: Spark creates this file after all others of a folder.
_SUCCESS: Final = "_SUCCESS"
_KEY: Final = ["id", "application"]
NO_ROOTS: Final = (
    "The complete record is at the destination under its id. Set ARRESTER_DEAD_LETTERS_ROOTS on the"
    " server to the folders of dead letters that it may read."
)


class RecordUnavailable(ArresterError):
    """The record cannot be read. The message has the reason, and what to do."""


def read_row(place: str, format: str, *, application: str, id: str, roots: Sequence[str]) -> str:
    """Return the source row of a dead letter as JSON text; raise RecordUnavailable."""
    if format not in FORMATS:
        raise RecordUnavailable(
            f"The server reads files of {', '.join(FORMATS)}, not {format}."
            " Read the record at the destination by its id."
        )
    folder = _permitted(place, roots)
    try:
        import pyarrow  # noqa: F401  # not needed by other processes
    except ImportError:
        raise RecordUnavailable(
            "The server has no pyarrow: install arrester[files] where the worker runs."
        ) from None
    try:
        for file in _files(folder):
            row = _ROWS[format](file, application, id)
            if row is not None:
                return row
    except (OSError, ValueError) as exc:
        # pyarrow's exceptions are both.
        raise RecordUnavailable(
            f"A file in {place} cannot be read ({type(exc).__name__}: {exc}). It may be damaged,"
            " or was replaced meanwhile: read it again, or at the destination."
        ) from exc
    raise RecordUnavailable(
        f"No file in {place} has a dead letter of {application} with this id. It may have been"
        " moved or removed."
    )


def _permitted(place: str, roots: Sequence[str]) -> str:
    """Return the folder if it is below a root, and no link leads there."""
    if not roots:
        raise RecordUnavailable(NO_ROOTS)
    folder = place.removeprefix("file://") if place.startswith("file:///") else place
    folder = folder.removeprefix("file:") if folder.startswith("file:/") else folder
    if not folder.startswith("/"):
        raise RecordUnavailable(
            f"The server reads local and mounted folders only, not {place}. Read the record at the"
            " destination by its id."
        )
    for root in roots:
        if os.path.normpath(folder) == folder and _is_below(folder, root):
            real = os.path.realpath(root) + folder[len(root) :]
            if os.path.realpath(folder) != real:
                raise RecordUnavailable(f"{place} has a link, which the server does not follow.")
            return folder
    raise RecordUnavailable(
        f"{place} is not below a folder in ARRESTER_DEAD_LETTERS_ROOTS. Add its folder there, or"
        " read the record at the destination by its id."
    )


def _is_below(folder: str, root: str) -> bool:
    return folder.startswith(f"{root}/")


def _files(folder: str) -> list[str]:
    """Return the data files of a complete folder; raise RecordUnavailable."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        raise RecordUnavailable(
            f"{folder} does not exist on the server. Mount the folder there, or read the record at"
            " the destination by its id."
        ) from None
    except PermissionError:
        raise RecordUnavailable(
            f"The server may not read {folder}: permit it to the user of the worker."
        ) from None
    if _SUCCESS not in {each.name for each in entries}:
        raise RecordUnavailable(
            f"{folder} is not complete: it is being written. Read it again after the run has"
            " written it."
        )
    is_data = (each for each in entries if each.is_file(follow_symlinks=False))
    return sorted(each.path for each in is_data if each.name.startswith("part-"))


def _of_parquet(file: str, application: str, id: str) -> str | None:
    """Read the ids of each row group first: they are a small part of it."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as opened:
        for number in range(opened.num_row_groups):
            at = _index(opened.read_row_group(number, columns=_KEY), application, id)
            if at is not None:
                rows = opened.read_row_group(number, columns=["row"])
                return str(rows.column("row")[at].as_py())
    return None


def _of_orc(file: str, application: str, id: str) -> str | None:
    import pyarrow.orc as orc

    opened = orc.ORCFile(file)
    for number in range(opened.nstripes):
        at = _index(opened.read_stripe(number, columns=_KEY), application, id)
        if at is not None:
            return str(opened.read_stripe(number, columns=["row"]).column("row")[at].as_py())
    return None


def _index(keys: Any, application: str, id: str) -> int | None:
    """Return the number of the row with an id and application."""
    import pyarrow.compute as compute

    is_same = compute.and_(
        compute.equal(keys.column("id"), id), compute.equal(keys.column("application"), application)
    )
    at = compute.index(is_same, True).as_py()
    return None if at < 0 else int(at)


def _of_json(file: str, application: str, id: str) -> str | None:
    for line in _lines(file):
        if id.encode() in line:
            found = json.loads(line)
            if (found.get("id"), found.get("application")) == (id, application):
                return str(found.get("row"))
    return None


def _lines(file: str) -> Iterator[bytes]:
    """Yield the lines of a file, which may be compressed."""
    import pyarrow as arrow

    with arrow.input_stream(file, compression="detect") as stream:
        rest = b""
        while block := stream.read(1 << 20):
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
        yield rest


_ROWS = {"parquet": _of_parquet, "orc": _of_orc, "json": _of_json}
