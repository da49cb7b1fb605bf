"""The effect of the uncaught exception handler's answer on thread, instance, application
(KIP-671)."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.python_versions import StrEnum
from arrester.domain.state.states import InstanceStatus
from arrester.domain.state.transitions import may_start_thread


class UncaughtAnswer(StrEnum):
    """The valid answers of the uncaught exception handler, including the spellings of its draft."""

    REPLACE_THREAD = "REPLACE_THREAD"
    SHUTDOWN_THREAD = "SHUTDOWN_THREAD"
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"
    DEFAULT = "DEFAULT"
    REPLACE_STREAM_THREAD = "REPLACE_THREAD"
    SHUTDOWN_STREAM_THREAD = "SHUTDOWN_THREAD"
    SHUTDOWN_KAFKA_STREAMS_CLIENT = "SHUTDOWN_CLIENT"
    SHUTDOWN_KAFKA_STREAMS_APPLICATION = "SHUTDOWN_APPLICATION"


class ReplacementPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How soon and how often a thread is replaced."""

    first_wait_ms: int = 1_000
    longest_wait_ms: int = 60_000
    #: Replacements allowed in any `window_ms`.
    limit: int = 10
    window_ms: int = 3_600_000


class Replacements(msgspec.Struct, frozen=True):
    """The times of the pipeline's replacements within the window."""

    at_ms: tuple[int, ...] = ()


class OverrideReason(StrEnum):
    """Why the effect differs from the answer."""

    NO_ANSWER = "NO_ANSWER"
    GLOBAL_TASK = "GLOBAL_TASK"
    NOT_RUNNING = "NOT_RUNNING"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"


class Consequence(msgspec.Struct, frozen=True, kw_only=True):
    """What happens after a thread has died; the thread itself is DEAD in any case."""

    answer: UncaughtAnswer
    replacements: Replacements
    #: Why it differs from the handler's answer.
    reason: OverrideReason | None = None
    #: Start a new thread from the checkpoint after this wait.
    replace_after_ms: int | None = None
    #: The states that the instance, with all its threads, goes through.
    instance_path: tuple[InstanceStatus, ...] = ()
    #: Shut down every instance of the application, and latch it.
    shuts_application: bool = False
    #: Raise the exception from `await_termination` at once, not only after the other threads.
    raises: bool = False
    messages: tuple[LogMessage, ...] = ()


#: For SHUTDOWN_CLIENT: it ends without error, and keeps the exception as its reason.
TO_NOT_RUNNING = (InstanceStatus.PENDING_SHUTDOWN, InstanceStatus.NOT_RUNNING)
#: For SHUTDOWN_APPLICATION, in the deciding instance and in each one that receives the command.
TO_ERROR = (InstanceStatus.PENDING_ERROR, InstanceStatus.ERROR)


def uncaught(
    answer: object,
    *,
    instance: InstanceStatus,
    global_task: bool,
    replacements: Replacements,
    now_ms: int,
    policy: ReplacementPolicy = ReplacementPolicy(),  # noqa: B008 (frozen)
) -> Consequence:
    """Return the effect of the handler's answer; None (no handler) means SHUTDOWN_CLIENT.

    An invalid answer, as from a handler that raised, means SHUTDOWN_CLIENT too.
    """
    if answer is None:
        return _shut(UncaughtAnswer.SHUTDOWN_CLIENT, replacements)
    if not isinstance(answer, UncaughtAnswer):
        messages = (LogMessage.HANDLER_BROKEN,)
        return _shut(
            UncaughtAnswer.SHUTDOWN_CLIENT, replacements, OverrideReason.NO_ANSWER, messages
        )
    if answer is not UncaughtAnswer.REPLACE_THREAD:
        return _shut(answer, replacements)
    recent = _recent(replacements, now_ms=now_ms, policy=policy)
    instead = _instead(instance, recent, policy, global_task=global_task)
    if instead is not None:
        return _shut(*instead, messages=(LogMessage.REPLACEMENT_REFUSED,))
    return Consequence(
        answer=answer,
        replacements=Replacements((*recent.at_ms, now_ms)),
        replace_after_ms=backoff_ms(len(recent.at_ms) + 1, policy),
        messages=(LogMessage.THREAD_REPLACED,),
    )


def _instead(
    instance: InstanceStatus,
    recent: Replacements,
    policy: ReplacementPolicy,
    *,
    global_task: bool,
) -> tuple[UncaughtAnswer, Replacements, OverrideReason] | None:
    """Return what is done instead of a replacement, and why; None if it is allowed."""
    if global_task:
        return UncaughtAnswer.SHUTDOWN_CLIENT, recent, OverrideReason.GLOBAL_TASK
    if not may_start_thread(instance):
        return UncaughtAnswer.SHUTDOWN_THREAD, recent, OverrideReason.NOT_RUNNING
    if len(recent.at_ms) >= policy.limit:
        return UncaughtAnswer.SHUTDOWN_CLIENT, recent, OverrideReason.BUDGET_EXHAUSTED
    return None


def backoff_ms(replacement: int, policy: ReplacementPolicy) -> int:
    """Return the wait before the nth replacement of a window: doubling from the first, capped."""
    # 2^40 first waits are beyond any cap; the shift stays small even without a limit.
    return min(policy.first_wait_ms << min(replacement - 1, 40), policy.longest_wait_ms)


def _recent(replacements: Replacements, *, now_ms: int, policy: ReplacementPolicy) -> Replacements:
    return Replacements(tuple(at for at in replacements.at_ms if now_ms - at < policy.window_ms))


def _shut(
    answer: UncaughtAnswer,
    replacements: Replacements,
    reason: OverrideReason | None = None,
    messages: tuple[LogMessage, ...] = (),
) -> Consequence:
    plain = Consequence(answer=answer, replacements=replacements, reason=reason, messages=messages)
    thread, instance = (
        (*messages, LogMessage.THREAD_SHUT_DOWN),
        (*messages, LogMessage.INSTANCE_SHUT_DOWN),
    )
    match answer:
        case UncaughtAnswer.SHUTDOWN_CLIENT:
            return replace(plain, instance_path=TO_NOT_RUNNING, messages=instance)
        case UncaughtAnswer.SHUTDOWN_APPLICATION:
            return replace(plain, instance_path=TO_ERROR, shuts_application=True, messages=instance)
        case UncaughtAnswer.DEFAULT:
            return replace(plain, raises=True, messages=thread)
        case _:
            return replace(plain, messages=thread)
