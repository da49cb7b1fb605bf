"""Production exceptions: KIP-210, KIP-399, KIP-1065."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.classify import DEFAULT_TABLE, Kind, describe
from arrester.controlplane.domain.error_policy.exception_identity import Cause
from arrester.controlplane.domain.error_policy.log_levels import LEVELS
from arrester.controlplane.domain.error_policy.policy import Answer, StageKind
from arrester.controlplane.domain.error_policy.respond import UNASKED, Decided
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter
from arrester.controlplane.domain.error_policy.setting_definitions import PRODUCTION_HANDLER
from arrester.controlplane.domain.error_policy.settings import ErrorSettings
from tests.conformance.cases import Case, Json
from tests.conformance.simulation import Task

NEEDS_SPARK: dict[str, str] = {}
KAFKA, JAVA = "org.apache.kafka.common.errors.", "java.lang."
IN_JAVA = ("IllegalStateException", "RuntimeException", "ClassCastException")
INTERNAL = {
    name: f"org.apache.kafka.streams.errors.{name}"
    for name in ("TaskMigratedException", "TaskCorruptedException")
}


def cause_of(text: str) -> Cause:
    """Return what is known of an exception that a case names in words."""
    if text.startswith(("non-retriable", "value serializer", "key serializer", "key serial")):
        return describe(ValueError(text))
    if text.startswith("async send failure"):
        return describe(OSError(text))
    name = text.split()[0]
    place = JAVA if name in IN_JAVA else KAFKA
    names = [INTERNAL.get(name, place + name)]
    if "(retriable)" in text:
        names.append(KAFKA + "RetriableException")
    return Cause(names=(*names, "java.lang.RuntimeException", "java.lang.Exception"))


def producer(answer: object = UNASKED, **given: object) -> Task:
    keys = {name.replace("_", "."): value for name, value in given.items()}
    if answer is not UNASKED:
        keys["production.exception.handler"] = "my.Handler"
    settings = ErrorSettings.read(keys)
    task = Task(settings.policy(StageKind.PRODUCE), stage=StageKind.PRODUCE)
    task.answer = answer
    return task


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    if "fatal" in expect:
        check_fatal_list(expect["fatal"])
    elif "values" in expect:
        check_values(expect)
    elif "tasks_sharing_producer" in given:
        check_pending(expect)
    elif "treated_as" in expect:
        check_retry(given, expect)
    elif given.get("response") == "RETRY":
        assert fails(producer(Answer.RETRY, errors_retries_limit=1), "Timeout (retriable)") == (
            "again",
            expect["dlq_records"],
        )
    else:
        check_failure(given, expect)


def fails(task: Task, words: str) -> tuple[str, int]:
    fate = task.fail(cause_of(words), Attempts())
    outcome = "again" if isinstance(fate, RetryAfter) else task.ended(fate)
    return outcome, task.dead_letters


def check_failure(given: Json, expect: Json) -> None:
    words = given.get("async_exception") or given.get("error") or "non-retriable"
    answer = given.get("handler_returns") or given.get("handler_would_return")
    task = producer(UNASKED if answer is None else Answer[answer])
    outcome, dead_letters = fails(task, words)
    raises = expect.get("raises", expect.get("raises_on_flush", expect.get("pending_error_set")))
    surfaces = expect.get("surfaces_as")
    if "handler_called" in expect:
        assert bool(task.asked) is expect["handler_called"]
    if "task migrated" in str(surfaces) or (expect.get("handler_called") is False and not surfaces):
        assert outcome == "not ours"
    elif raises or surfaces:
        assert outcome == "task_killed"
    else:
        assert outcome == "skipped"
    if "dropped-records-total" in expect:
        assert task.counters.records_skipped == expect["dropped-records-total"]
    if "dlq_records" in expect:
        assert dead_letters == expect["dlq_records"]
    if expect.get("later_sends") == "work":
        assert not task.run.failed
    check_levels(task, expect)


def check_levels(task: Task, expect: Json) -> None:
    said = task.last.said if isinstance(task.last, Decided) else ()
    levels = {LEVELS[saying].name for saying in said}
    assert set(expect.get("levels", levels)) == levels
    if "log_level" in expect:
        assert expect["log_level"] in levels


def check_retry(given: Json, expect: Json) -> None:
    task = producer(Answer[given["handler_returns"]], errors_retries_limit=1)
    outcome, _ = fails(task, given["async_exception"])
    assert outcome == {"FAIL": "task_killed", "RETRY": "again"}[expect["treated_as"]]
    if outcome == "task_killed":
        check_levels(task, expect)


def check_pending(expect: Json) -> None:
    """One thread, one memory: after FAIL nothing else of it is decided, and nobody is asked."""
    task = producer(Answer.CONTINUE)
    assert fails(task, "AuthenticationException")[0] == "task_killed"
    assert fails(task, "non-retriable")[0] == "task_killed"
    assert (task.asked, task.errors) == (0, 1)
    assert set(expect.values()) == {"raises"}


def check_fatal_list(names: list[str]) -> None:
    for words in names:
        immediate = "raised by send itself" in words
        ruling = DEFAULT_TABLE.classify(cause_of(words), immediate=immediate)
        assert ruling.kind is Kind.FATAL, words


def check_values(expect: Json) -> None:
    shipped = expect["shipped_today"]
    assert {Answer[name] for name in expect["values"]} < set(Answer)
    assert {Answer[name] for name in shipped["values"]} < set(Answer)
    assert fails(producer(), "non-retriable")[0] == "task_killed"
    assert PRODUCTION_HANDLER.old == expect["config"]
    assert PRODUCTION_HANDLER.name == shipped["config"].split()[0]
    assert fails(producer(errors_retries_limit=1), "Timeout (retriable)")[0] == "again"
