"""Decide about the failed records of a micro-batch: call handlers, stop tasks, count exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice

from pyspark.sql import DataFrame

from arrester.agents.decisions.constant_answers import ConstantAnswers
from arrester.agents.decisions.handler_retries import HandlerRetries, Recovered
from arrester.agents.decisions.outage import Outage, SinkProgress, detect_outage
from arrester.agents.decisions.rules import FailureRules
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.aggregate import Coordinates, FailureSummary
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.failure_set import FailureSet
from arrester.agents.failures.pause_offsets import pause_offset_of, place
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.frames.local_checkpoint import releasing
from arrester.agents.stop_signal import StopRequested
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import OutagePolicy
from arrester.domain.events import FinalResponse
from arrester.domain.plural import plural

#: Failed records that are loaded at a time when a handler must be called.
_PAGE = 200
#: The most characters of a failure's message in a log line.
_MESSAGE_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about a micro-batch or chunk."""

    #: By task: the place at which it stops, PAUSED or DEAD.
    pause_offsets: Mapping[str, Cursor] = field(default_factory=dict)
    #: The tasks that die at their stop (errors.failure.scope=task).
    dead: Set[str] = frozenset()
    #: The first record answered FAIL; then nothing else is decided.
    fatal: FailedRecord | None = None
    #: The outage, if too many records failed alike.
    outage: Outage | None = None
    #: The records at which tasks stop, and further ones that are counted only.
    stopping: Sequence[FailedRecord] = ()
    stopped_tasks: Sequence[FailureSummary] = ()
    #: Skipped records that are reported in full, and those that are counted only.
    examples: Sequence[FailedRecord] = ()
    counted: Sequence[FailureSummary] = ()
    #: Records that failed, were retried by their handler, and passed.
    recovered: Sequence[Recovered] = ()

    def response_to(self, task: str | None) -> FinalResponse:
        """Return whether a task that stops is PAUSED or dies."""
        return FinalResponse.FAIL if task in self.dead else FinalResponse.PAUSE


@dataclass(slots=True, kw_only=True)
class _Answers:
    """The answers of the handlers, called or declared."""

    pause_offsets: dict[str, Cursor] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    fatal: FailedRecord | None = None
    recovered: list[Recovered] = field(default_factory=list)
    #: Attempts of records that took more than their rows count.
    attempts: dict[Coordinates, int] = field(default_factory=dict)

    def with_attempts(self, each: FailedRecord) -> FailedRecord:
        """Return the record with all of its attempts."""
        attempts = self.attempts.get((each.task, each.position), each.problem.attempts)
        return replace(each, problem=replace(each.problem, attempts=attempts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Decide about the failed records of a micro-batch or chunk."""

    rules: FailureRules
    retries: HandlerRetries
    examples_limit: int
    outage: OutagePolicy = field(default_factory=OutagePolicy)
    #: How far the sink got, if the records failed there.
    sink_progress: SinkProgress | None = None

    def decide(self, failures: FailureSet, reported: Sequence[Coordinates]) -> Decision:
        """Return the decision about the failed records of a micro-batch or chunk.

        `reported` are the coordinates of records reported earlier. They are always among the
        examples, so that they are not counted twice.
        """
        self.rules.handler_faults.clear()
        failures.rank(limit=self.examples_limit, in_full=reported)
        # Rows of recovered records, until a decision owns them.
        with releasing() as blocks:
            decision = self._decision(failures, reported, blocks)
            if decision.recovered:
                blocks.clear()
        return decision

    def _decision(
        self, failures: FailureSet, reported: Sequence[Coordinates], blocks: list[DataFrame]
    ) -> Decision:
        outage = detect_outage(failures, self.rules.pipeline, self.outage, self.sink_progress)
        before_outage = failures
        if outage is not None:
            if outage.response is FinalResponse.FAIL:
                return self._redacted(Decision(fatal=outage.example, outage=outage))
            pause_offset = pause_offset_of(outage.pause_offsets)
            before_outage = failures.where(pause_offset.isNull() | (place() < pause_offset))
        answers = self._answers(before_outage, blocks)
        for each in answers.recovered:
            failures = failures.where(~each.is_at())
        if outage is not None:
            answers.pause_offsets = {**outage.pause_offsets, **answers.pause_offsets}
        decision = Decision(fatal=answers.fatal)
        if answers.fatal is None:
            decision = replace(self._with_examples(failures, answers, reported), outage=outage)
        if decision.fatal is not None:
            self._check_not_stopping(decision.fatal)
        return self._redacted(decision)

    def log(self, decision: Decision) -> None:
        """Log a decision that is about to take effect, in a bounded number of lines."""
        _log(decision, self.rules)

    def _check_not_stopping(self, fatal: FailedRecord) -> None:
        """Raise StopRequested in a run that is stopping: the next run decides about the record."""
        try:
            self.retries.wait(0)
        except StopRequested:
            log_failure(LogMessage.KILLED_WHILE_STOPPING, self.rules.log_line(fatal))
            raise

    def _redacted(self, decision: Decision) -> Decision:
        """Remove the values of redacted fields from messages and traces; handlers received them."""
        fatal, outage = decision.fatal, decision.outage
        if self.rules.unmatched is not None:
            failed = [*decision.examples, *decision.stopping, *([] if fatal is None else [fatal])]
            self.rules.unmatched.check([each.row.asDict() for each in failed])
        return replace(
            decision,
            fatal=fatal and self._redacted_record(fatal),
            outage=outage and replace(outage, example=self._redacted_record(outage.example)),
            stopping=[self._redacted_record(each) for each in decision.stopping],
            examples=[self._redacted_record(each) for each in decision.examples],
        )

    def _redacted_record(self, each: FailedRecord) -> FailedRecord:
        each = self.rules.with_handler_fault(each)
        texts = each.problem.message, each.problem.stack, each.key
        message, stack, key = self.rules.redaction.texts(each.row.asDict(), *texts)
        return replace(
            each, problem=replace(each.problem, message=message or "", stack=stack), key=key
        )

    def _answers(self, failures: FailureSet, blocks: list[DataFrame]) -> _Answers:
        """Return the answers of the handlers, called or declared."""
        numbers = [n for n, stage in self.rules.stages.items() if stage.needs_each_record]
        if numbers and failures.has_failed_at(numbers):
            return self._call_handlers(failures, blocks)
        constant = ConstantAnswers(failures=failures, rules=self.rules)
        pause_offsets, dead, fatal = constant.decide()
        return _Answers(pause_offsets=pause_offsets, dead=dead, fatal=fatal)

    def _call_handlers(self, failures: FailureSet, blocks: list[DataFrame]) -> _Answers:
        """Call the handlers record by record, ordered by task and position, page by page."""
        answers = _Answers()
        now_ms = self.rules.now_ms()
        for page in self._pages(failures, answers.pause_offsets):
            for each in page:
                if each.task is not None and each.task in answers.pause_offsets:
                    continue
                result = self.retries.retry_until_decided(each, failures.rows, now_ms=now_ms)
                if isinstance(result, Recovered):
                    answers.recovered.append(result)
                    blocks += result.evaluated.blocks
                    continue
                last, response = result
                if last.problem.attempts != each.problem.attempts:
                    answers.attempts[each.task, each.position] = last.problem.attempts
                if response is FinalResponse.FAIL and not self.rules.ends_only_its_task(each):
                    answers.fatal = last
                    return answers
                if response is not FinalResponse.CONTINUE and each.task is not None:
                    self._stop(answers, each, response)
        return answers

    def _stop(self, answers: _Answers, each: FailedRecord, response: FinalResponse) -> None:
        """Stop a task at one of its records: it is PAUSED there, or DEAD."""
        assert each.task is not None
        answers.pause_offsets[each.task] = Cursor(entry=each.entry, position=each.position)
        if response is FinalResponse.FAIL:
            answers.dead.add(each.task)
            self.rules.reset(each.task)

    def _pages(
        self, failures: FailureSet, pause_offsets: Mapping[str, Cursor]
    ) -> Iterator[list[FailedRecord]]:
        """Yield failed records in order, without those after a stop decided meanwhile.

        Diagnosing a record of a native step takes the driver milliseconds; a stop request ends the
        iteration between two pages.
        """
        ordered = failures.ordered()
        while rows := list(islice(ordered, _PAGE)):
            self.retries.wait(0)
            ids = [row.id for row in rows if row.task is None or row.task not in pause_offsets]
            yield failures.load_by_id(self.rules.pipeline, ids)

    def _with_examples(
        self, failures: FailureSet, answers: _Answers, reported: Sequence[Coordinates]
    ) -> Decision:
        """Load the records that are reported in full, and count the rest exactly."""
        report = failures.report(
            limit=self.examples_limit,
            in_full={*reported, *answers.attempts},
            pause_offsets=answers.pause_offsets,
        )
        loaded = failures.load_by_id(self.rules.pipeline, report.examples)
        records = [answers.with_attempts(each) for each in loaded]
        fatal = [
            each for each in records if each.task not in answers.dead and self.rules.is_fatal(each)
        ]
        if fatal:
            log_failure(LogMessage.FATAL_FAILURE, self.rules.log_line(fatal[0]))
            if not self.rules.ends_only_its_task(fatal[0]):
                return Decision(fatal=fatal[0])
            # A task stops at its first fatal record: all later records are held.
            for each in reversed(fatal):
                self._stop(answers, each, FinalResponse.FAIL)
            return self._with_examples(failures, answers, reported)
        return Decision(
            pause_offsets=answers.pause_offsets,
            dead=answers.dead,
            stopping=[each for each in records if _is_stop(each, answers.pause_offsets)],
            examples=[each for each in records if not _is_stop(each, answers.pause_offsets)],
            stopped_tasks=report.stopped_tasks,
            counted=report.counted,
            recovered=answers.recovered,
        )


def _is_stop(each: FailedRecord, pause_offsets: Mapping[str, Cursor]) -> bool:
    at = Cursor(entry=each.entry, position=each.position)
    return each.task is not None and pause_offsets.get(each.task) == at


def _most_frequent(decision: Decision, pipeline: Pipeline, *, is_output: bool) -> str:
    """Return stage, class and message of the most frequent cause of the skipped records."""
    end = pipeline.produce_number
    examples = [each for each in decision.examples if (each.number == end) is is_output]
    if not examples:
        return ""
    # The class of a native failure is unknown where it is counted only.
    counts = Counter((each.number, each.problem.exception_class) for each in examples)
    for each in decision.counted:
        counts[each.number, str(each.exception_class)] += each.records
    first = max(examples, key=lambda each: counts[each.number, each.problem.exception_class])
    problem = first.problem
    message = problem.message.partition("\n")[0][:_MESSAGE_CHARACTERS]
    return f", most of them at {first.stage}: {problem.exception_class}: {message}"


def _log(decision: Decision, rules: FailureRules) -> None:
    name = rules.pipeline.name
    if decision.outage is not None:
        [_, _, message] = decision.outage.example.problem.line.partition(": ")
        cause = f": {message}" if message else ""
        log_failure(LogMessage.OUTAGE, f"{decision.outage}{cause}")
    if decision.fatal is not None:
        log_failure(LogMessage.TASK_KILLED, rules.log_line(decision.fatal))
    skipped = [(each.task, each.number, 1) for each in decision.examples]
    skipped += [(each.task, each.number, each.records) for each in decision.counted]
    end = rules.pipeline.produce_number
    for line, is_output in ((LogMessage.RECORD_SKIPPED, False), (LogMessage.OUTPUT_SKIPPED, True)):
        counts = [(task, n) for task, number, n in skipped if (number == end) is is_output]
        if counts:
            records, tasks = sum(n for _, n in counts), len({task for task, _ in counts})
            cause = _most_frequent(decision, rules.pipeline, is_output=is_output)
            what = f"{plural(records, 'failed record')} of {plural(tasks, 'task')} skipped"
            log_failure(line, f"{name}: {what}{cause}")
    for each in decision.stopping:
        died = each.task in decision.dead
        line = LogMessage.TASK_KILLED if died else LogMessage.TASK_PAUSED
        log_failure(line, rules.log_line(each))
    dead = sum(each.task in decision.dead for each in decision.stopped_tasks)
    paused = len(decision.stopped_tasks) - dead
    for line, more in ((LogMessage.TASK_PAUSED, paused), (LogMessage.TASK_KILLED, dead)):
        if more:
            stopped = plural(more, "more failed record")
            log_failure(line, f"{name}: {stopped}, each of another task")
