"""Production exceptions: KIP-210, KIP-399, KIP-1065."""

from __future__ import annotations

from collections.abc import Callable

from arrester.agents.error_policy.respond import NOT_CALLED, Decided, HandlerRaised
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.classify import DEFAULT_TABLE, Kind, describe
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.log_levels import LEVELS
from arrester.domain.error_policy.policy import Response, StageKind
from arrester.domain.error_policy.retry import Attempts, RetryAfter
from arrester.domain.error_policy.setting_definitions import PRODUCTION_HANDLER
from tests.conformance.cases import Case, Form, Json, Known
from tests.conformance.simulation import ANSWERS, Task

IGNORED = {
    "dlq": "the name of the topic",
    "first_task": "a description: its failure is fatal",
    "source_raw_value_in_context": "read with the key",
    "sent": "a skipped record is not sent",
}
KAFKA, JAVA = "org.apache.kafka.common.errors.", "java.lang."
IN_JAVA = ("IllegalStateException", "RuntimeException", "ClassCastException")
INTERNAL = {
    name: f"org.apache.kafka.streams.errors.{name}"
    for name in ("TaskMigratedException", "TaskCorruptedException")
}


def cause_of(text: str) -> Cause:
    """Return the cause for an exception that a case names in words."""
    if text.startswith(("non-retriable", "any", "value serial", "key serial", "serialization f")):
        return describe(ValueError(text))
    if text.startswith("async send failure"):
        return describe(OSError(text))
    name = text.split()[0]
    place = JAVA if name in IN_JAVA else KAFKA
    names = [INTERNAL.get(name, place + name)]
    if "(retriable)" in text:
        names.append(KAFKA + "RetriableException")
    return Cause(names=(*names, "java.lang.RuntimeException", "java.lang.Exception"))


def producer(answer: object = NOT_CALLED, **given: object) -> Task:
    keys = {name.replace("_", "."): value for name, value in given.items()}
    if answer is not NOT_CALLED:
        keys["production.exception.handler"] = "my.Handler"
    settings = ErrorSettings.read(keys)
    task = Task(settings.policy(StageKind.PRODUCE), stage=StageKind.PRODUCE)
    task.answer = answer
    return task


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_retry_without_dead_letter(case: Case) -> None:
    task = producer(ANSWERS[case.given["response"]], errors_retries_limit=1)
    found = fails(task, "Timeout (retriable)")
    assert found == ("again", case.expect["dlq_records"])


def check_unknown_topic(case: Case) -> None:
    """The sink's topic does not exist."""
    assert case.given["partitions_for_topic"] == 0
    outcome, _ = fails(producer(), "UnknownTopicOrPartitionException (retriable)")
    assert (outcome == "task_killed") is bool(case.expect["raises"])


def check_sync(case: Case) -> None:
    """`send` itself raises an exception."""
    assert case.given["exception_from"] == "send call itself"
    cause, task = cause_of("non-retriable"), producer(Response.CONTINUE)
    assert DEFAULT_TABLE.classify(cause, immediate=True) == DEFAULT_TABLE.classify(cause)
    task.ended(task.fail(cause, Attempts()))
    assert bool(task.asked) is case.expect["handler_called"]


#: The conditions of KIP-210's order: the exception, and whether an earlier one is pending.
CONDITIONS = Known(
    {
        "producer fenced": ("ProducerFencedException", False),
        "affects all records (fatal list)": ("AuthenticationException", False),
        "an error is already pending": ("non-retriable", True),
        "otherwise call handler": ("non-retriable", False),
    }
)


def check_order(case: Case) -> None:
    """Each condition of the list decides whether the handler is called."""
    assert case.given["async_exception"] == "any"
    for line in case.expect["order"]:
        condition, _, effect = line.partition(" -> ")
        exception, pending = CONDITIONS[condition]
        task = producer(Response.CONTINUE)
        if pending:
            fails(task, "AuthenticationException")
        fails(task, exception)
        assert bool(task.asked) is ("handler not called" not in effect), line


def fails(task: Task, words: str) -> tuple[str, int]:
    decision = task.fail(cause_of(words), Attempts())
    outcome = "again" if isinstance(decision, RetryAfter) else task.ended(decision)
    return outcome, task.dead_letters


def check_failure(case: Case) -> None:
    given, expect = case.given, case.expect
    words = given.get("async_exception") or given.get("error") or "non-retriable"
    answer = given.get("handler_returns") or given.get("handler_would_return")
    handlers = Known(
        {"default": NOT_CALLED, "raises": HandlerRaised("the handler's own exception")}
    )
    handler = handlers[given.get("handler", "default")]
    task = producer(handler if answer is None else ANSWERS[answer])
    outcome, dead_letters = fails(task, words)
    raises = expect.get("raises", expect.get("raises_on_flush", expect.get("pending_error_set")))
    surfaces = expect.get("surfaces_as")
    if "handler_called" in expect:
        assert bool(task.asked) is expect["handler_called"]
    if "handler_returns" in expect:
        assert isinstance(task.last, Decided)
        assert task.last.response == ANSWERS[expect["handler_returns"]].name
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
    messages = task.last.messages if isinstance(task.last, Decided) else ()
    levels = {LEVELS[message].name for message in messages}
    assert set(expect.get("levels", levels)) == levels
    if "log_level" in expect:
        assert expect["log_level"] in levels


def check_retry(case: Case) -> None:
    given, expect = case.given, case.expect
    task = producer(ANSWERS[given["handler_returns"]], errors_retries_limit=1)
    outcome, _ = fails(task, given["async_exception"])
    assert outcome == {"FAIL": "task_killed", "RETRY": "again"}[expect["treated_as"]]
    if outcome == "task_killed":
        check_levels(task, expect)


def check_pending(case: Case) -> None:
    """The tasks of a thread share its state: after FAIL no handler is called for any of them."""
    task = producer(Response.CONTINUE)
    outcomes = [fails(task, "AuthenticationException")[0]]
    outcomes += [
        fails(task, "non-retriable")[0] for _ in range(case.given["tasks_sharing_producer"] - 1)
    ]
    assert set(outcomes) == {"task_killed"}
    assert (task.asked, task.errors) == (0, 1)
    assert set(case.expect.values()) == {"raises"}


def check_fatal_list(case: Case) -> None:
    for words in case.expect["fatal"]:
        immediate = "raised by send itself" in words
        ruling = DEFAULT_TABLE.classify(cause_of(words), immediate=immediate)
        assert ruling.kind is Kind.FATAL, words


def check_values(case: Case) -> None:
    expect = case.expect
    shipped = expect["shipped_today"]
    assert {ANSWERS[name] for name in expect["values"]} < set(Response)
    assert {ANSWERS[name] for name in shipped["values"]} < set(Response)
    fails_by_default = fails(producer(), "non-retriable")[0] == "task_killed"
    assert fails_by_default is expect["default"].endswith("(always FAIL)")
    assert PRODUCTION_HANDLER.former_name == expect["config"]
    assert PRODUCTION_HANDLER.name == shipped["config"].split()[0]
    assert fails(producer(errors_retries_limit=1), "Timeout (retriable)")[0] == "again"


FORMS: dict[Form, Callable[[Case], None]] = {
    ("expect.fatal",): check_fatal_list,
    ("expect.values",): check_values,
    ("expect.order",): check_order,
    ("given.exception_from",): check_sync,
    ("given.partitions_for_topic",): check_unknown_topic,
    ("given.tasks_sharing_producer",): check_pending,
    ("expect.treated_as",): check_retry,
    ("given.response~RETRY",): check_retry_without_dead_letter,
    ("given.async_exception",): check_failure,
    ("given.error",): check_failure,
    ("given.handler_returns",): check_failure,
    ("given.handler",): check_failure,
}
