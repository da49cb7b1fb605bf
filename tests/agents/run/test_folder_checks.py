"""A run does not write into the folders that its source reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from arrester.agents.dead_letters.destinations import DeadLettersUnusable
from arrester.agents.definition.builder import define
from arrester.agents.journal.storage import CheckpointUnusable
from arrester.agents.run.folder_checks import check_folders
from arrester.agents.spark.sources.folders import folder_read_at
from arrester.domain.errors import InvalidValue
from tests.agents.pipeline_bench import SCHEMA, Bench, sink_to

pytestmark = pytest.mark.spark

Place = Callable[[Path], str]


@pytest.fixture
def folders(bench: Bench) -> Path:
    """Return a folder with `x/in` and with links to it and to `x`."""
    root = bench.folder / "data"
    (root / "x" / "in").mkdir(parents=True)
    (root / "link").symlink_to(root / "x" / "in")
    (bench.folder / "other").mkdir()
    (bench.folder / "other" / "y").symlink_to(root / "x")
    return root


def stream(bench: Bench, path: str) -> DataFrame:
    return bench.spark.readStream.schema(SCHEMA).json(path)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("{0}/x/in", "{0}/x/in"),
        ("{0}/x/in", "{0}/x/in/"),
        ("{0}/x/in/", "file:{0}/x/in"),
        ("file://{0}/x/in", "{0}/x/./in"),
        ("{0}/x/in", "{0}/x/in/out"),
        ("{0}/x/in", "{0}/x"),
        ("{0}/x/in", "{0}/link"),
        ("{0}/link", "{0}/x/in/out"),
        ("{0}/*/in", "{0}/x/in"),
        ("{0}/*/in", "{0}/new/in/out"),
        ("{0}/*/in", "{0}"),
        ("{0}/[w-z]/i?", "{0}/x/in"),
        ("{0}/{{x/in,z/in}}", "{0}/z/in"),
        ("{0}/../other/*/in", "{0}/x/in"),
    ],
)
def test_a_folder_that_the_source_reads_is_found(
    bench: Bench, folders: Path, read: str, written: str
) -> None:
    source = stream(bench, read.format(folders))
    assert folder_read_at(source, written.format(folders)) is not None


def test_a_relative_folder_is_compared_as_an_absolute_one(bench: Bench, tmp_path: Path) -> None:
    # The working directory of the JVM is the one in which it was started.
    here = Path.cwd() / "src-not-there"
    batch = bench.spark.read.schema(SCHEMA).json(str(tmp_path))
    assert folder_read_at(batch, "src-not-there") is None
    assert folder_read_at(stream_of_parent(bench, here), "src-not-there/out") is not None


def stream_of_parent(bench: Bench, here: Path) -> DataFrame:
    return stream(bench, f"{here.parent}/{{src-not-there,other}}*")


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("{0}/x/in", "{0}/x/inner"),
        ("{0}/x/in", "{0}/x/out"),
        ("{0}/*/in", "{0}/x/out"),
        ("{0}/*/in", "{0}-other/x/in"),
        ("{0}/x/in", "{0}/x/in/_out"),
        ("{0}/x/in", "{0}/x/in/.out/part=1"),
    ],
)
def test_a_folder_that_the_source_does_not_read_is_not_found(
    bench: Bench, folders: Path, read: str, written: str
) -> None:
    source = stream(bench, read.format(folders))
    assert folder_read_at(source, written.format(folders)) is None


def test_a_static_source_of_files_is_compared_too(bench: Bench, folders: Path) -> None:
    bench.spark.range(1).write.mode("append").json(f"{folders}/x/in")
    source = bench.spark.read.schema("id BIGINT").json(f"{folders}/*/in")
    assert folder_read_at(source, f"{folders}/link") is not None
    assert folder_read_at(bench.spark.range(1), f"{folders}/link") is None


def test_a_run_refuses_files_in_the_folder_of_its_source(bench: Bench) -> None:
    pipeline = bench.define().write_files(f"{bench.folder}/in/out")
    with pytest.raises(InvalidValue, match=r"write_files: path: .* its rows would come back"):
        bench.start(pipeline)
    assert not Path(bench.checkpoint).exists()


def test_a_run_refuses_dead_letters_around_the_folder_of_its_source(bench: Bench) -> None:
    pipeline = bench.define().write(sink_to(bench.folder / "out"))
    with pytest.raises(DeadLettersUnusable, match=r"errors\.dlq\.path=.* would come back"):
        bench.start(pipeline, errors_dlq_path=str(bench.folder))


def test_a_checkpoint_is_not_in_the_source_and_has_no_output_in_it(bench: Bench) -> None:
    source = bench.source()
    builder = define("lines", source, task="task", position="position")
    inside = builder.write(sink_to(bench.folder / "out"))
    with pytest.raises(CheckpointUnusable, match="would be read as records"):
        check_folders(inside, f"{bench.folder}/in/checkpoint", None)
    check_folders(inside, f"{bench.folder}/in/_checkpoint", None)
    with pytest.raises(InvalidValue, match="a folder outside of the checkpoint"):
        check_folders(builder.write_files(f"{bench.checkpoint}/out"), bench.checkpoint, None)
