"""Applications, tasks and error groups by the names that people use, and near names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from arrester.cli.client import Client, Json, segment
from arrester.cli.exit_codes import InvalidInput, Refused
from arrester.domain.identity.names import task_digest

TASK_ID = re.compile(r"[0-9a-f]{32}")
#: Names that a message lists, and the most applications that a name without one is searched in.
LISTED, SEARCHED = 5, 20
NEAREST = 3
#: The most tasks that a name is compared with.
COMPARED = 1000


def task_name(task: Json) -> str:
    """Return the name of a row of a task: `flights/delays/JFK`, without a key `flights/delays`."""
    parts = [task["application"], task["pipeline"]]
    return "/".join(parts if task["key"] is None else [*parts, task["key"]])


def task_state(task: Json) -> str:
    """Return the state of a row of a task, as the filter of the list names it.

    A RUNNING task whose checkpoint no run uses is NO_RUN.
    """
    state: str = task["status"]
    return "NO_RUN" if state == "RUNNING" and task["last_run_ended_at"] else state


def find_task(client: Client, name: str) -> Json:
    """Return a task by its name or id.

    `application/pipeline/key` is the name on the live checkpoint of the pipeline; shorter forms,
    `pipeline/key` and the name on pages, `pipeline_key`, are for those that are unique.

    Raises:
        Refused: there is no such task.
        InvalidInput: several tasks have the name.
    """
    if TASK_ID.fullmatch(name):
        return client.get(f"tasks/{name}")
    found = [task for digest in _digests(client, name) for task in _if_known(client, digest)]
    if not found:
        raise Refused(_unknown("task", name, _task_names(client, name)), status=404)
    if len(found) > 1:
        names = ", ".join(task_name(each) for each in found[:LISTED])
        raise InvalidInput(f"task {name!r} is ambiguous; allowed: one of {names}")
    return found[0]


def find_task_or_key(client: Client, name: str) -> Json:
    """Return a task as `find_task`; of an unknown task, the fields that name it by its key.

    Raises:
        Refused: `name` is not APPLICATION/PIPELINE/KEY of a pipeline that has a run.
    """
    try:
        return find_task(client, name)
    except Refused as refused:
        application, _, rest = name.partition("/")
        pipeline, slash, key = rest.partition("/")
        if refused.status != 404 or not slash or application not in application_names(client):
            raise
        runs = client.get(f"applications/{segment(application)}/runs")["results"]
        if pipeline not in (pipelines := {each["pipeline"] for each in runs}):
            known = [f"{application}/{each}" for each in pipelines]
            raise Refused(
                _unknown("pipeline", f"{application}/{pipeline}", known), status=404
            ) from None
        return {"application": application, "pipeline": pipeline, "key": key}


def application_names(client: Client) -> list[str]:
    """Return the names of all applications."""
    return [each["name"] for each in client.get("applications")["results"]]


@contextmanager
def near_applications(client: Client, name: str | None) -> Iterator[None]:
    """Add the nearest names to the refusal of an unknown application."""
    try:
        yield
    except Refused as refused:
        if refused.status != 404 or name is None or "application" not in refused.message:
            raise
        names = application_names(client)
        if name in names:
            raise
        raise Refused(_unknown("application", name, names), status=404) from None


def find_group(client: Client, name: str, application: str | None = None) -> Json:
    """Return an error group by its fingerprint, or by `application/fingerprint`.

    Raises:
        Refused: there is no such group.
        InvalidInput: several applications have it.
    """
    known = application_names(client)
    if application is not None and application not in known:
        raise Refused(_unknown("application", application, known), status=404)
    first, slash, rest = name.partition("/")
    if application is None and slash and first in known:
        application, name = first, rest
    asked = [application] if application else known
    found = [group for each in asked for group in _group_if_known(client, each, name)]
    if not found:
        fingerprints = _fingerprints(client, application)
        raise Refused(_unknown("error group", name, fingerprints), status=404)
    if len(found) > 1:
        names = ", ".join(f"{each['application']}/{name}" for each in found[:LISTED])
        raise InvalidInput(f"error group {name!r} is ambiguous; allowed: one of {names}")
    return found[0]


def _digests(client: Client, name: str) -> Iterator[str]:
    """Yield the ids that the name may mean."""
    known = application_names(client)
    first = name.partition("/")[0]
    searched = [first] if first in known else known
    if len(searched) > SEARCHED:
        raise InvalidInput(
            f"task {name!r} is not allowed; allowed: APPLICATION/PIPELINE/KEY, or the id of a task"
        )
    for application in searched:
        for run in client.get(f"applications/{segment(application)}/runs")["results"]:
            for key in _keys(name, application, run["pipeline"]):
                yield task_digest(application, run["pipeline"], run["checkpoint"], key)


def _keys(name: str, application: str, pipeline: str) -> Iterator[str | None]:
    """Yield the keys of the pipeline that the name may mean; None is the task without a key."""
    if name in (f"{application}/{pipeline}", pipeline):
        yield None
    for prefix in (f"{application}/{pipeline}/", f"{pipeline}/", f"{pipeline}_"):
        if name.startswith(prefix):
            yield name.removeprefix(prefix)


def _if_known(client: Client, digest: str) -> list[Json]:
    try:
        return [client.get(f"tasks/{digest}")]
    except Refused as refused:
        if refused.status != 404:
            raise
        return []


def _group_if_known(client: Client, application: str, fingerprint: str) -> list[Json]:
    try:
        return [client.get(f"errors/{segment(application)}/{segment(fingerprint)}")]
    except Refused as refused:
        if refused.status != 404:
            raise
        return []


def _task_names(client: Client, name: str) -> list[str]:
    """Return names to compare with: of the tasks of the named application, or of all."""
    parts = name.split("/")
    filters: dict[str, Any] = {}
    if parts[0] in application_names(client):
        filters["application"] = parts[0]
    rows, _ = client.rows("tasks", limit=COMPARED, **filters)
    return [task_name(each) for each in rows]


def _fingerprints(client: Client, application: str | None) -> list[str]:
    rows, _ = client.rows("errors", limit=COMPARED, state="all", application=application)
    return [each["fingerprint"] for each in rows]


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    names = sorted(set(known))
    near = get_close_matches(name, names, n=NEAREST, cutoff=0.6)
    if near:
        return f"{kind} {name!r} is unknown; nearest names: {', '.join(near)}"
    more = ", …" if len(names) > LISTED else ""
    listed = f"{', '.join(names[:LISTED])}{more}" if names else f"there is no {kind} yet"
    return f"{kind} {name!r} is unknown; known: {listed}"
