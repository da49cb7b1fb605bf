"""A damaged append-only file of Redis: keep the original, go on with the part before the damage."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

FOLDER = "appendonlydir"
_DAMAGE = re.compile(
    "check-aof|check-rdb|AOF manifest|AOF file .* doesn't exist|Wrong signature|RDB format version"
    "|RDB reading|[Rr][Dd][Bb] file|[Ee]rror reading the append only file [^ ]*, error"
    "|[Uu]nknown command|Unable to obtain the AOF file .* No such file"
)
_REPAIR_SECONDS = 300


def is_damage(log: str) -> bool:
    """Return whether Redis logs that it could not read its data; a full disk is no damage."""
    return _DAMAGE.search(log) is not None


def repair(data: Path, server: Path) -> Path:
    """Replace the append-only file, a folder, by a copy that ends before the damage.

    The program that cuts it is the server under another name. It is used for the last part only,
    because it does not know every format of the first one.

    Returns the new place of the original. Raises OSError: then the original is where it was.
    """
    draft = data / f"{FOLDER}.new"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(data / FOLDER, draft)
    for part in sorted(draft.glob("*.incr.aof"), key=_number)[-1:]:
        # Otherwise it stays damaged, as parts of other formats do.
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["valkey-check-aof", "--fix", part],
                executable=server,
                input=b"y\n",
                capture_output=True,
                timeout=_REPAIR_SECONDS,
                check=False,
            )
    original = data / f"{FOLDER}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    (data / FOLDER).rename(original)
    draft.rename(data / FOLDER)
    return original


def remove(data: Path) -> None:
    """Remove the copy: a server starts without data."""
    shutil.rmtree(data / FOLDER)


def _number(part: Path) -> int:
    found = re.search(r"\.(\d+)\.incr\.aof$", part.name)
    return int(found[1]) if found else 0
