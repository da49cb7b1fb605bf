"""The table of versions in README."""

from __future__ import annotations

from scripts.matrix import BEGIN, END, SETS, counts, with_row

REPORT = (
    """<testsuites><testsuite tests="1210" skipped="8" failures="1" errors="1"/></testsuites>"""
)


def rows(readme: str) -> list[str]:
    return readme.partition(BEGIN)[2].partition(END)[0].splitlines()[2:]


def test_errors_are_failures_and_zeros_are_left_out() -> None:
    assert counts(REPORT) == "1,200 passed, 2 failed, 8 skipped"
    assert counts('<testsuite tests="0" skipped="0" failures="0" errors="0"/>') == "0 passed"


def test_a_row_replaces_that_of_its_minor_version_only() -> None:
    readme = f"before\n{BEGIN}{END}after\n"
    for version, found in [("4.0.4", "1 passed"), ("3.5.9", "2 passed"), ("4.0.5", "3 passed")]:
        readme = with_row(readme, [version, *[found] * len(SETS)])
    first, second = rows(readme)
    assert first.startswith("| 3.5.9 | 2 passed |")
    assert second.startswith("| 4.0.5 | 3 passed |")
    assert readme.startswith("before\n") and readme.endswith("after\n")
