"""Run the tests that need Spark on each supported version, and write the table of README.

    python -m scripts.matrix [MINOR…]

Each version has its own environment (`scripts/spark-venv`). Only the rows of the given versions
change. Exits with 1 if a test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
README = REPOSITORY / "README.md"
BEGIN, END = "<!-- make matrix -->\n", "<!-- end of make matrix -->\n"
MINORS = ("3.5", "4.0", "4.1", "4.2", "4.3")
#: The version of requirements/dev.txt, whose environment is .venv.
NEWEST = MINORS[-1]
#: The columns of the table, with the arguments of pytest.
SETS = {
    "agent": [
        *(f"tests/agents/{name}" for name in ("batch", "dead_letters", "execution", "worker")),
        *(f"tests/agents/{name}" for name in ("sink", "spark", "run/test_kill_and_restart.py")),
        *(
            f"tests/agents/run/test_{name}.py"
            for name in ("ansi_mode", "driver_log", "pause_and_resume", "static_data")
        ),
    ],
    "conformance": ["-m", "not cluster", "tests/conformance"],
    "loop with server": ["tests/e2e/test_loop.py"],
}
#: Tests wait more than they compute.
PROCESSES = ["--numprocesses", "2", "--dist", "loadfile", "-rs"]


def main(minors: list[str]) -> int:
    """Run the tests on the given versions; return the exit status."""
    if unknown := set(minors) - set(MINORS):
        raise SystemExit(f"unknown version {', '.join(unknown)}; known are {', '.join(MINORS)}")
    ok, today = True, f"{date.today():%Y-%m-%d}"
    for minor in minors or MINORS:
        python = python_of(minor)
        found = [run(python, arguments) for arguments in SETS.values()]
        ok = ok and all("failed" not in each for each in found)
        README.write_text(with_row(README.read_text(), [version_of(python), *found, today]))
    return 0 if ok else 1


def python_of(minor: str) -> Path:
    """Return the interpreter of a version's environment, which is made if necessary."""
    if minor == NEWEST:
        return REPOSITORY / ".venv/bin/python"
    subprocess.run([REPOSITORY / "scripts/spark-venv", minor], check=True)
    return REPOSITORY / f"build/spark-{minor}/bin/python"


def version_of(python: Path) -> str:
    """Return the version of PySpark in an environment."""
    code = "import pyspark; print(pyspark.__version__)"
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def run(python: Path, arguments: list[str]) -> str:
    """Run pytest and return its counts as text."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [python, "-m", "pytest", "-q", f"--junit-xml={report}", *PROCESSES, *arguments],
            cwd=REPOSITORY,
            env=os.environ | {"PYSPARK_PYTHON": str(python)},
        )
        return counts(report.read_text())


def counts(report: str) -> str:
    """Return the counts of a JUnit report: `12 passed, 1 failed, 2 skipped`."""
    suites = list(ET.fromstring(report).iter("testsuite"))
    tests, skipped, failures, errors = (
        sum(int(suite.get(name, 0)) for suite in suites)
        for name in ("tests", "skipped", "failures", "errors")
    )
    failed = failures + errors
    parts = [(tests - failed - skipped, "passed"), (failed, "failed"), (skipped, "skipped")]
    return ", ".join(f"{number:,} {name}" for number, name in parts if number or name == "passed")


def with_row(readme: str, row: list[str]) -> str:
    """Return the text of README with a version's row in the table, in the place of its minor."""
    before, begin, rest = readme.partition(BEGIN)
    table, end, after = rest.partition(END)
    assert begin and end, f"README.md has no lines {BEGIN.strip()} and {END.strip()}"
    rows = {minor_of(line): line for line in table.splitlines()[2:]}
    rows[minor_of(f"| {row[0]} |")] = f"| {' | '.join(row)} |"
    header = ["PySpark", *SETS, "date"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    lines += [rows[minor] for minor in sorted(rows)]
    return before + begin + "".join(f"{line}\n" for line in lines) + end + after


def minor_of(line: str) -> str:
    """Return the minor version of a row."""
    return ".".join(line.split("|")[1].strip().split(".")[:2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
