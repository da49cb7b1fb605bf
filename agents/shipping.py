"""Send `agents/worker` to the executors under a private name, so that it hides nobody's package."""

from __future__ import annotations

import hashlib
import importlib
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType

from pyspark import SparkContext

from agents import worker

#: A cluster may have another package called `agents`; our zip would come before it.
SHIPPED = "_arrester_worker"


def ship(context: SparkContext) -> None:
    """Make the worker package importable on every executor and here; more calls change nothing."""
    archive = _archive()
    if any(Path(name).name == archive.name for name in context._python_includes or ()):
        return
    context.addPyFile(str(archive))
    # Another session of this process may have shipped another version.
    for name in [name for name in sys.modules if name.split(".")[0] == SHIPPED]:
        del sys.modules[name]
    importlib.invalidate_caches()


def shipped_records() -> ModuleType:
    """Return the module whose classes unpickle on executors; `ship` must have run."""
    return importlib.import_module(f"{SHIPPED}.records")


def _archive() -> Path:
    """Write the zip, named by its content: other code is another file."""
    sources = sorted(Path(worker.__path__[0]).glob("*.py"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    archive = Path(tempfile.mkdtemp(prefix="arrester-")) / f"arrester_worker_{digest}.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for path in sources:
            target.write(path, f"{SHIPPED}/{path.name}")
    return archive
