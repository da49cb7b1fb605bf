"""The lines of the author's code around the one that raised."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from arrester.agents.failures.payload import Redaction
from arrester.agents.failures.source_lines import LINE_CHARACTERS, source_lines
from arrester.agents.handlers import LogAndContinue
from arrester.domain.events import RecordFailed, SourceLines
from tests.agents.pipeline_bench import Bench, sink_to

CODE = "".join(f"# line {number}\n" for number in range(1, 21))
STACK = (
    'Traceback …\n  File "/executor/{name}", line {number}, in check\n    {text}\nValueError: 1\n'
)


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Path]:
    """Return the file of a loaded module."""
    path = tmp_path / "authors_checks.py"
    path.write_text(CODE)
    loaded = ModuleType("authors_checks")
    loaded.__file__ = str(path)
    sys.modules["authors_checks"] = loaded
    yield path
    del sys.modules["authors_checks"]


def stack(number: int, *, text: str | None = None, name: str = "authors_checks.py") -> str:
    return STACK.format(name=name, number=number, text=text or f"# line {number}")


def test_five_lines_before_and_after_are_read(module: Path) -> None:
    found = source_lines("authors_checks.py:10 in check", stack(10))
    assert found == SourceLines(first=5, lines=tuple(f"# line {n}" for n in range(5, 16)))
    first, last = (source_lines(f"authors_checks.py:{n} in check", stack(n)) for n in (1, 20))
    assert first is not None and (first.first, len(first.lines)) == (1, 6)
    assert last is not None and (last.first, len(last.lines)) == (15, 6)


def test_long_lines_are_cut(module: Path) -> None:
    module.write_text("x" * 10_000)
    found = source_lines("authors_checks.py:1 in check", None)
    assert found is not None and found.lines == ("x" * LINE_CHARACTERS,)


@pytest.mark.parametrize(
    ("frame", "trace"),
    [
        (None, None),
        ("", ""),
        ("authors_checks.py:21 in check", stack(21)),
        ("authors_checks.py:0 in check", None),
        # The executor had another version of the file.
        ("authors_checks.py:10 in check", stack(10, text="raise ValueError(1)")),
        ("another.py:10 in check", stack(10, name="another.py")),
        # A file that no module has, such as one that a message names.
        ("passwd:1 in root", 'File "/etc/passwd", line 1, in root\n    root:x:0:0\n'),
        # Of an installed package.
        (f"{Path(pytest.__file__).name}:1 in f", None),
    ],
)
def test_other_lines_are_not_read(module: Path, frame: str | None, trace: str | None) -> None:
    assert source_lines(frame, trace) is None


def test_of_two_files_with_one_name_the_one_with_the_line_is_read(
    module: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / module.name
    other.parent.mkdir()
    other.write_text(CODE.replace("line", "row"))
    sys.modules["other.authors_checks"] = loaded = ModuleType("other.authors_checks")
    loaded.__file__ = str(other)
    try:
        found = source_lines("authors_checks.py:3 in check", stack(3, text="# row 3"))
        assert found is not None and found.lines[0] == "# row 1"
        assert source_lines("authors_checks.py:3 in check", None) is None
    finally:
        del sys.modules["other.authors_checks"]


def test_a_cell_of_a_notebook_is_read() -> None:
    name = "/tmp/ipykernel_1/2864.py"
    linecache.cache[name] = (len(CODE), None, CODE.splitlines(keepends=True), name)
    try:
        assert source_lines("2864.py:2 in check", stack(2, name="2864.py")) is not None
    finally:
        del linecache.cache[name]


def test_lines_of_a_real_trace_are_those_of_the_file() -> None:
    try:
        raise ValueError("here")
    except ValueError as exc:
        [frame] = traceback.extract_tb(exc.__traceback__)
        trace = traceback.format_exc()
    found = source_lines(f"{Path(__file__).name}:{frame.lineno} in {frame.name}", trace)
    assert found is not None and frame.lineno is not None
    assert found.lines[frame.lineno - found.first].strip() == 'raise ValueError("here")'


def test_values_of_dropped_fields_and_secrets_are_hidden() -> None:
    lines = ('    password = "hunter2"', "    a = {'token': 'abc', 'x': 1}", "    raise E(4711)")
    redaction = Redaction(drop=("card",), builtin=("password", "token"))
    body = redaction.body(
        {"card": "4711", "x": 1}, stack=None, source=SourceLines(first=3, lines=lines)
    )
    assert body.source is not None and body.source.first == 3
    shown = "\n".join(body.source.lines)
    assert not any(secret in shown for secret in ("hunter2", "abc", "4711"))
    assert "'x': 1" in shown and "password = " in shown


@pytest.mark.spark
@pytest.mark.parametrize("enabled", [True, False])
def test_the_first_example_of_a_group_in_a_run_has_the_lines(bench: Bench, enabled: bool) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        return {"number": int(row["value"])}  # the line that raises

    bench.add(*[("a", n, "bad") for n in range(3)])
    pipeline = (
        bench.define()
        .process("check", check, schema="number INT", on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline, errors_include_source=enabled)
    bench.wait_for_input()
    bench.add(("b", 0, "bad"))
    bench.wait_for_input()
    bench.stop()

    failed = bench.outbox.of(RecordFailed)
    bodies = [each.body for each in bench.outbox.events if each.body is not None]
    assert len(bodies) == 4
    assert [each.with_source for each in failed] == [enabled, False, False, False]
    assert [each.source is not None for each in bodies] == [enabled, False, False, False]
    if enabled:
        source = bodies[0].source
        assert source is not None
        assert any("# the line that raises" in line for line in source.lines)
