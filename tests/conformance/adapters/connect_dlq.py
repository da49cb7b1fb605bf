"""Dead letters of Connect: configuration. The effects check headers, payload and topic."""

from __future__ import annotations

from collections.abc import Callable

from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.setting_definitions import (
    ALIASES,
    DLQ_PRODUCER,
    KEYS,
)
from tests.conformance.cases import Case, Form, Json

IGNORED = {
    "connector": "the name of the pipeline, part of the expected headers",
    "task": "the task, part of the expected headers",
    "stage": "the stage, part of the expected headers",
    "executing_class": "the class of the step, part of the expected headers",
    "creation_failure": "a description; the check starts a run whose topic cannot be created",
    "encoding": "a description; the check compares decoded headers",
    "shipped": "Connect's later form; its names are accepted, and decisions cover the rest",
}


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def defaults(config: Json, names: list[str]) -> dict[str, object]:
    """Return the value of each setting by the real configuration; an absent text is empty."""
    settings = ErrorSettings.read(config).dead_letters
    values = {
        "errors.dlq.enable": settings.enable,
        "errors.dlq.topic.name": settings.topic or "",
        "errors.dlq.topic.partitions": settings.partitions,
        "errors.dlq.topic.replication.factor": settings.replication_factor,
        "errors.dlq.include.configs": settings.include_configs,
        "errors.dlq.include.messages": settings.include_messages,
        "errors.deadletterqueue.context.headers.enable": settings.context_headers,
    }
    return {name: values[ALIASES[name].name if name in ALIASES else name] for name in names}


def check_defaults(case: Case) -> None:
    assert case.expect == defaults(case.given["config"], list(case.expect))


def check_seed_settings(case: Case) -> None:
    """Every setting of the seed exists and has the seed's default."""
    known = {*KEYS, f"{DLQ_PRODUCER}*"}
    assert [name for name in case.given["seed_keys"] if name not in known] == []
    wanted = case.expect["seed_defaults"]
    assert wanted == defaults({}, list(wanted))


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.config",): check_defaults,
    ("given.seed_keys",): check_seed_settings,
}
