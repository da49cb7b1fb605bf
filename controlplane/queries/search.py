"""Search applications, pipelines, tasks and error groups by name."""

from __future__ import annotations

import msgspec

from arrester.controlplane.queries import sql
from arrester.controlplane.queries.current_state.applications import application_names
from arrester.controlplane.queries.failure_history.error_groups import GroupFilter, groups
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import GroupState, TaskState

#: Results of each kind, and tasks that are compared to find the best of them.
SHOWN, COMPARED = 8, 500
#: The display name of a task without a key, which names its pipeline, is not searched.
_TASK_NAME = "lower(pipeline || '_' || key)"
_TASKS = f"""
SELECT digest FROM (
    SELECT digest, pipeline, key FROM task
    WHERE strpos({_TASK_NAME}, lower(%s)) > 0 AND {live_checkpoints.OF_THREADS} LIMIT {COMPARED}
) AS matching
ORDER BY length(pipeline) + length(key), pipeline, key LIMIT {SHOWN}
"""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What contains the searched text, the shortest names first; error groups newest first."""

    applications: tuple[str, ...]
    #: Each with its application.
    pipelines: tuple[tuple[str, str], ...]
    #: The tasks of live checkpoints.
    tasks: tuple[TaskState, ...]
    checkpoints: live_checkpoints.Checkpoints
    #: The error groups whose class or message has the text.
    groups: tuple[GroupState, ...]


def search(text: str) -> SearchResult:
    """Return at most `SHOWN` of each kind whose name contains `text`, in any case."""
    threads = live(row_mapping.THREADS.load_readable("true", []))
    pipelines = {(each.application, each.pipeline) for each in threads if _has(text, each.pipeline)}
    applications = {name for name in application_names() if _has(text, name)}
    digests = [digest for (digest,) in sql.rows(_TASKS, [text, *live_checkpoints.columns(threads)])]
    by_digest = {
        task.id.digest: task
        for task in row_mapping.TASKS.load_readable("digest = ANY(%s)", [digests])
    }
    return SearchResult(
        applications=tuple(sorted(applications, key=lambda each: (len(each), each))[:SHOWN]),
        pipelines=tuple(sorted(pipelines, key=lambda each: (len(each[1]), each))[:SHOWN]),
        tasks=tuple(by_digest[each.hex] for each in digests if each.hex in by_digest),
        checkpoints=live_checkpoints.checkpoints_of(threads),
        groups=groups(GroupFilter(text=text), limit=SHOWN).rows,
    )


def _has(text: str, name: str) -> bool:
    return text.lower() in name.lower()
