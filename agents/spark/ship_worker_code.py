"""Ship the package `agents/worker` to the executors, under a private name.

PySpark's pickler sends the author's functions.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
import zipfile
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import SparkContext, cloudpickle

from arrester.agents import worker
from arrester.domain.error_policy import exception_identity, retry
from arrester.domain.error_policy.policy import Policy
from arrester.domain.wire import dead_letter_messages

#: The package's name on executors. They may have another package `agents`, which stays visible.
SHIPPED = "_arrester_worker"
#: Rules and formats that executors use too. Their modules import the standard library only.
_RULES = (exception_identity, retry, dead_letter_messages)


def ship(context: SparkContext) -> None:
    """Make the package importable on all executors and here; idempotent."""
    archive = _write_archive(context)
    if any(Path(name).name == archive.name for name in context._python_includes or ()):
        return
    context.addPyFile(str(archive))
    # This process may have imported another version, from an earlier context.
    for name in [name for name in sys.modules if name.split(".")[0] == SHIPPED]:
        del sys.modules[name]
    importlib.invalidate_caches()


def shipped(name: str) -> ModuleType:
    """Return a module whose classes unpickle on executors; `ship` must have run."""
    return importlib.import_module(f"{SHIPPED}.{name}")


def shipped_rules(policy: Policy) -> object:
    """Return a policy's rules about failures, of classes that unpickle on executors."""
    retry, exception_identity = shipped("retry"), shipped("exception_identity")
    retry_policy = retry.RetryPolicy(
        limit=policy.retry.limit,
        timeout_ms=policy.retry.timeout_ms,
        delay_max_ms=policy.retry.delay_max_ms,
    )
    return shipped("errors").Rules(
        wait_after=retry_policy.wait_after,
        describe=exception_identity.describe,
        known_as=exception_identity.known_as,
        kinds={name: ruling.kind.value for name, ruling in policy.table.classifications.items()},
        retries=policy.retry.limit != 0,
    )


def pickle_error(context: Any, value: object) -> Exception | None:
    """Return why `value` cannot be sent to executors, None if it can."""
    try:
        cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # PySpark has no types for it
    except Exception as exc:  # the pickling code of a class may raise anything
        return exc
    finally:
        # Otherwise Spark would send the broadcast variables of `value` with the next function.
        context._pickled_broadcast_vars.clear()
    return None


def _write_archive(context: Any) -> Path:
    """Write the zip to the driver's temporary folder, which Spark deletes when it stops.

    Its name contains a digest of its content.
    """
    sources = _sources()
    digest = hashlib.sha256(b"\0".join(sources[name] for name in sorted(sources))).hexdigest()[:12]
    archive = Path(context._temp_dir) / f"arrester_worker_{digest}.zip"
    draft = archive.with_suffix(f".{threading.get_ident()}")
    with zipfile.ZipFile(draft, "w") as target:
        for name in sorted(sources):
            # Files have a constant time: each executor compares the archive with an earlier copy.
            target.writestr(zipfile.ZipInfo(f"{SHIPPED}/{name}"), sources[name])
    draft.replace(archive)
    return archive


def _sources() -> dict[str, bytes]:
    """Return the files to send by name. They may be in a zip, as `--py-files` makes of us."""
    modules = [each for each in files(worker).iterdir() if each.name.endswith(".py")]
    names = [rule.__name__.rpartition(".") for rule in _RULES]
    rules = [files(package) / f"{name}.py" for package, _, name in names]
    return {each.name: each.read_bytes() for each in (*modules, *rules)}
