"""A trace in the log: all frames, and only the first line of each message."""

from __future__ import annotations

import traceback

from arrester.agents.failures.payload import with_first_lines

QUOTING = "1 error in Flight\nsecret\n  secret = 4111\n+ secret\n\n| secret"
JAVA = f"""org.apache.spark.SparkException: {QUOTING}
\tat org.apache.spark.Job.run(Job.scala:7)
\tSuppressed: java.io.IOException: {QUOTING}
\t\tat java.io.File.close(File.java:1)
Caused by: java.lang.ArithmeticException: {QUOTING}
\tat scala.Int.div(Int.scala:3)
\t... 12 more
"""


def raised(exc: BaseException, cause: BaseException | None = None) -> str:
    try:
        raise exc from cause
    except BaseException as caught:
        return "".join(traceback.format_exception(caught))


def test_a_trace_of_java_keeps_all_frames_and_classes() -> None:
    assert with_first_lines(JAVA, "org.apache.spark.SparkException").splitlines() == [
        "org.apache.spark.SparkException: 1 error in Flight",
        "\tat org.apache.spark.Job.run(Job.scala:7)",
        "\tSuppressed: java.io.IOException: 1 error in Flight",
        "\t\tat java.io.File.close(File.java:1)",
        "Caused by: java.lang.ArithmeticException: 1 error in Flight",
        "\tat scala.Int.div(Int.scala:3)",
        "\t... 12 more",
    ]


def test_a_trace_of_python_keeps_all_frames_and_causes() -> None:
    try:
        raise KeyError("flight")
    except KeyError as cause:
        trace = raised(ValueError(QUOTING), cause)
    kept = with_first_lines(trace, "ValueError")
    assert set(kept.splitlines()) < set(trace.splitlines())
    assert "secret" not in kept and kept.endswith("ValueError: 1 error in Flight")
    assert "KeyError: 'flight'" in kept and kept.count("Traceback") == 2


def test_a_group_of_exceptions_keeps_each_of_them() -> None:
    kept = with_first_lines(
        raised(ExceptionGroup(QUOTING, [ValueError(QUOTING), KeyError("flight")])), "ExceptionGroup"
    )
    assert "secret" not in kept
    assert "| ExceptionGroup: 1 error in Flight" in kept
    assert "| ValueError: 1 error in Flight" in kept and "| KeyError: 'flight'" in kept


def test_a_trace_that_begins_within_a_message_begins_after_it() -> None:
    trace = raised(ValueError("flight"))
    assert with_first_lines(f"secret\nsecret\n{trace}", "ValueError") == trace.rstrip()
    assert with_first_lines("secret\nsecret", "ValueError") == ""
    assert with_first_lines("", "ValueError") == ""
