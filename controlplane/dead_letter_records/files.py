"""Find the record of a dead letter in a folder of files, which an event names.

Anyone who can send events names such folders, so only those below the configured roots are read,
links are not followed, and a row must have the application and the id.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from arrester.controlplane.object_stores import SCHEMES, is_plain, store_address
from arrester.domain.errors import ArresterError

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


class _Folder(NamedTuple):
    """A permitted folder."""

    #: A path, or the address in an object store.
    name: str
    #: The root in an object store that permits it, with its options; None for a path.
    root: str | None

    def opened(self) -> tuple[Any, str]:
        """Return its file system of pyarrow, and its path there."""
        from pyarrow.fs import FileSystem, LocalFileSystem

        if self.root is None:
            return LocalFileSystem(), self.name
        # Only the root is parsed as an address: an agent has reported the rest.
        files, path = FileSystem.from_uri(self.root)
        return files, path + self.name.removeprefix(self.root.partition("?")[0])


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
        files, path = folder.opened()
        for file in _data_files(files, path, folder.name):
            row = _ROWS[format](files, file, application, id)
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


def _permitted(place: str, roots: Sequence[str]) -> _Folder:
    """Return the folder if it is below a root, and no link leads there."""
    if not roots:
        raise RecordUnavailable(NO_ROOTS)
    folder = place.removeprefix("file://") if place.startswith("file:///") else place
    folder = folder.removeprefix("file:") if folder.startswith("file:/") else folder
    address = store_address(place)
    folder = address or folder
    if address is None and not folder.startswith("/"):
        raise RecordUnavailable(
            "The server reads local and mounted folders, and object stores"
            f" ({', '.join(f'{each}://' for each in SCHEMES)}), not {place}. Read the record at the"
            " destination by its id."
        )
    for root in roots:
        name = root.partition("?")[0]
        if not is_plain(folder) or not folder.startswith(f"{name}/"):
            continue
        if address is not None:
            return _Folder(folder, root)
        if os.path.realpath(folder) != os.path.realpath(name) + folder[len(name) :]:
            raise RecordUnavailable(f"{place} has a link, which the server does not follow.")
        return _Folder(folder, None)
    raise RecordUnavailable(
        f"{place} is not below a folder in ARRESTER_DEAD_LETTERS_ROOTS. Add its folder there, or"
        " read the record at the destination by its id."
    )


def _data_files(files: Any, path: str, name: str) -> list[str]:
    """Return the data files of a complete folder; raise RecordUnavailable."""
    from pyarrow.fs import FileSelector, FileType

    try:
        entries = files.get_file_info(FileSelector(path))
    except FileNotFoundError:
        if not name.startswith("/"):
            raise RecordUnavailable(f"{name} does not exist: it may have been moved.") from None
        raise RecordUnavailable(
            f"{name} does not exist on the server. Mount the folder there, or read the record at"
            " the destination by its id."
        ) from None
    except PermissionError:
        raise RecordUnavailable(
            f"The server may not read {name}: permit it to the user of the worker."
        ) from None
    if _SUCCESS not in {each.base_name for each in entries}:
        raise RecordUnavailable(
            f"{name} is not complete: it is being written. Read it again after the run has"
            " written it."
        )
    is_data = (
        each.path
        for each in entries
        if each.type is FileType.File and each.base_name.startswith("part-")
    )
    is_local = name.startswith("/")
    return sorted(each for each in is_data if not (is_local and os.path.islink(each)))


def _of_parquet(files: Any, path: str, application: str, id: str) -> str | None:
    """Read the ids of each row group first: they are a small part of it."""
    import pyarrow.parquet as parquet

    with files.open_input_file(path) as file, parquet.ParquetFile(file) as opened:
        for number in range(opened.num_row_groups):
            at = _index(opened.read_row_group(number, columns=_KEY), application, id)
            if at is not None:
                rows = opened.read_row_group(number, columns=["row"])
                return str(rows.column("row")[at].as_py())
    return None


def _of_orc(files: Any, path: str, application: str, id: str) -> str | None:
    import pyarrow.orc as orc

    with files.open_input_file(path) as file:
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


def _of_json(files: Any, path: str, application: str, id: str) -> str | None:
    # The file may be compressed.
    with files.open_input_stream(path, compression="detect") as stream:
        for line in _lines(stream):
            if id.encode() in line:
                found = json.loads(line)
                if (found.get("id"), found.get("application")) == (id, application):
                    return str(found.get("row"))
    return None


def _lines(stream: Any) -> Iterator[bytes]:
    """Yield the lines of a stream."""
    rest = b""
    while block := stream.read(1 << 20):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    yield rest


_ROWS = {"parquet": _of_parquet, "orc": _of_orc, "json": _of_json}
