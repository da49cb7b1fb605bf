"""Why an embedded server does not answer, as far as its disk and its log show."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

from arrester.controlplane.embedded.home import Home

#: PostgreSQL needs a new segment of its write-ahead log, of 16 MB, to start.
LEAST_FREE_BYTES = 32 << 20
_LOG_END_BYTES = 16_384
#: Lines about the server itself. Lines about statements could have values of records.
_OF_POSTGRES = re.compile(r"(?:FATAL|PANIC): +(.+)")
_OF_REDIS = re.compile(r" # (.*(?:AOF|append only|rror|atal|ailed|space).*)")


def postgres_cause(path: Path, url: str) -> str:
    """Return why the PostgreSQL of the data folder `path` does not answer.

    Empty if `url` is of another server, or if the cause is unknown.
    """
    home = Home(path.absolute())
    if str(home.sockets) not in unquote(url):
        return ""
    return _full_disk(home.postgres_data) or _last_match(home.postgres_log, _OF_POSTGRES)


def redis_cause(path: Path, url: str) -> str:
    """Return why the Redis of the data folder `path` does not answer; as `postgres_cause`."""
    home = Home(path.absolute())
    if str(home.sockets) not in unquote(url):
        return ""
    return _full_disk(home.redis_data) or _last_match(home.redis_log, _OF_REDIS)


def _full_disk(data: Path) -> str:
    try:
        usage = shutil.disk_usage(data)
    except OSError:
        return ""
    if usage.free >= LEAST_FREE_BYTES:
        return ""
    return f"The disk of {data} is full: free some space, then the server starts by itself."


def _last_match(log: Path, pattern: re.Pattern[str]) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_END_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    found = pattern.findall(text)
    return f"Its log {log.name} has: {found[-1]}" if found else ""
