"""Owners: the person or team that takes care of an error group, a stopped task or a dead letter.

The owner of an error group is the one that it is assigned to, else that of the first owner rule
that matches. That of a task or dead letter is the owner of its error group, in its own pipeline.
Owners are computed when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from arrester.controlplane.models import OwnerRule
from arrester.controlplane.queries import sql
from arrester.controlplane.store.column_values import fit
from arrester.domain.state.error_groups import NO_OWNER
from arrester.domain.state.states import GroupState, TaskState, if_set

#: Error groups by application and fingerprint.
Groups = Mapping[tuple[str, str], GroupState]
#: The assignee as JSON: no message can look like its key, since a quote in a message is escaped.
_ASSIGNEES = r"""
SELECT DISTINCT substring(state from '"assignee":("(?:[^"\\]|\\.)*")') FROM error_group
WHERE strpos(state, '"assignee":"') > 0
"""


class Owners(msgspec.Struct, frozen=True):
    """The owner rules, in their order."""

    rules: tuple[OwnerRule, ...] = ()

    def rule_of(
        self, application: str, pipeline: str | None, stage: str | None = None
    ) -> OwnerRule | None:
        """Return the first rule that matches; None: none does."""
        found = (each for each in self.rules if _matches(each, application, pipeline, stage))
        return next(found, None)

    def of(
        self, application: str, pipeline: str | None, group: GroupState | None = None
    ) -> str | None:
        """Return the owner of a part of a pipeline that has failed with a cause; None: no owner."""
        if group is not None and (assignee := if_set(group.assignee)):
            return assignee
        stage = None if group is None else group.stage
        rule = self.rule_of(application, pipeline, stage)
        return None if rule is None else rule.owner

    def of_group(self, group: GroupState) -> str | None:
        """Return the owner of an error group; None: it has none."""
        return self.of(group.application, group.pipeline, group)

    def owned_by(
        self, owner: str, *, part: str = "error_group", group: str = "error_group"
    ) -> tuple[str, list[Any]]:
        """Return the condition of the error groups of an owner as SQL, and its parameters.

        With `NO_OWNER` it is that of the groups without one. `part` is the table with the pipeline,
        `group` that of the error groups.
        """
        text = msgspec.json.encode(owner).decode()
        assigned = f"""strpos({group}.state, '"assignee":"') > 0"""
        cases = [f"WHEN {assigned} THEN strpos({group}.state, %s) > 0"]
        parameters: list[Any] = [f'"assignee":{text}']
        for rule in self.rules:
            patterns = {
                f"{part}.application": rule.application,
                f"{part}.pipeline": rule.pipeline,
                f"{group}.stage": rule.stage,
            }
            given = {column: pattern for column, pattern in patterns.items() if pattern}
            when = " AND ".join(f"{column} LIKE %s" for column in given) or "true"
            cases.append(f"WHEN {when} THEN {str(rule.owner == owner).lower()}")
            parameters += map(_like, given.values())
        return f"CASE {' '.join(cases)} ELSE {str(owner == NO_OWNER).lower()} END", parameters

    def tasks_owned_by(self, owner: str) -> tuple[str, list[Any]]:
        """Return the condition of the tasks of an owner as SQL, and its parameters."""
        owned, parameters = self.owned_by(owner, part="task", group="cause")
        return (
            f"(SELECT {owned} FROM (SELECT) AS one LEFT JOIN error_group AS cause"
            " ON cause.application = task.application AND cause.fingerprint = task.fingerprint)",
            parameters,
        )

    def of_task(self, task: TaskState, groups: Groups) -> str | None:
        """Return the owner of a task; None: it has none."""
        fingerprint = None if task.failure is None else task.failure.fingerprint
        group = None if fingerprint is None else groups.get((task.id.application, fingerprint))
        return self.of(task.id.application, task.id.pipeline, group)


def owners() -> Owners:
    """Return the owner rules that the person of the request may see: others match nothing that
    it sees."""
    return Owners(tuple(OwnerRule.objects.order_by("place", "id")))


def known_owners() -> tuple[str, ...]:
    """Return the names in owner rules and of assignees, for forms."""
    of_rules = {each.owner for each in owners().rules}
    assignees = {msgspec.json.decode(text, type=str) for (text,) in sql.rows(_ASSIGNEES)}
    return tuple(sorted(of_rules | assignees))


def _matches(rule: OwnerRule, application: str, pipeline: str | None, stage: str | None) -> bool:
    """Return whether a rule is about a stage of a pipeline; None matches no pattern."""
    stage = None if stage is None else fit(stage)
    pairs = ((rule.application, application), (rule.pipeline, pipeline), (rule.stage, stage))
    return all(
        not pattern or (text is not None and _expression(pattern).fullmatch(text))
        for pattern, text in pairs
    )


@lru_cache(maxsize=1_000)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _like(pattern: str) -> str:
    escapes: Mapping[str, str] = {"\\": "\\\\", "%": "\\%", "_": "\\_", "*": "%"}
    return "".join(escapes.get(each, each) for each in pattern)
