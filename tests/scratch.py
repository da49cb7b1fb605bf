"""Where the tests keep their files: in memory if it has space, else on the disk.

The suite clones a database for each test that commits, and starts hundreds of streaming queries,
each with thousands of small files. In memory they cost a fraction of the CPU.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
#: A run of the suite needs less than half of it.
_FREE_BYTES = 4 << 30
#: Any account can reach it: PostgreSQL runs under an account of its own.
FOLDER = "/tmp"
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _FREE_BYTES:
    FOLDER = str(_MEMORY)


def use() -> None:
    """Put the temporary files of this process, of Spark and of child processes there."""
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = FOLDER
    tempfile.tempdir = None
