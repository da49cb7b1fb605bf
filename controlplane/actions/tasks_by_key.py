"""Tasks by their keys, also those that no agent has reported yet."""

from __future__ import annotations

from arrester.controlplane.views import row_mapping
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.identity.names import KEY_MAX_BYTES, TaskId, is_long
from arrester.domain.state.live_runs import live


def task_of_key(application: str, pipeline: str, key: str) -> TaskId:
    """Return the task of a key on the live checkpoint of a pipeline.

    Raises NotFound for an unknown application, or a pipeline without a run, and InvalidValue for a
    key that no agent reports.
    """
    if is_long(key):
        raise InvalidValue("key", f"{key[:50]}…", f"a text of at most {KEY_MAX_BYTES} bytes")
    if not row_mapping.APPLICATIONS.load("name = %s", [application]):
        raise NotFound(f"there is no application {application!r}")
    threads = row_mapping.THREADS.load("application = %s", [application])
    for thread in live(threads):
        if thread.pipeline == pipeline:
            return TaskId(
                application=application,
                pipeline=pipeline,
                checkpoint=thread.checkpoint,
                key=key,
            )
    known = ", ".join(sorted({each.pipeline for each in threads})) or "none"
    raise NotFound(
        f"there is no run of a pipeline {pipeline!r} in application {application!r};"
        f" pipelines: {known}"
    )
