"""A standalone cluster of Spark as real processes, whose workers have nothing of ours installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.e2e.stack import eventually
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port
from tests.services import REPOSITORY

SPARK_HOME = Path(str(pyspark.__file__)).parent
#: The packages that PySpark's functions need on executors.
PACKAGES = ("numpy", "pandas", "pyarrow")
VENV_PACK = "venv-pack==0.2.0"
#: The interpreter of the packed environment, in an executor's folder.
EXECUTOR_PYTHON = "./environment/bin/python"
DEFAULTS = """
spark.executor.cores 1
spark.executor.memory 512m
spark.dynamicAllocation.enabled true
spark.dynamicAllocation.shuffleTracking.enabled true
spark.dynamicAllocation.minExecutors 1
spark.dynamicAllocation.executorIdleTimeout 5s
"""


@dataclass
class Cluster:
    """A master and its workers, each with one core."""

    folder: Path
    _port: int = 0
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        """The URL of the master."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start a master and two workers, and wait until the workers are registered."""
        self._port = free_port()
        self._run("master", "master.Master", "--port", str(self._port))
        eventually(lambda: "Starting Spark master" in self._log("master"), what="the master runs")
        for number in (1, 2):
            self.start_worker(number)

    def start_worker(self, number: int) -> None:
        """Start a worker, and wait until it is registered."""
        name, before = f"worker-{number}", self._log("master").count("Registering worker")
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name))
        self._run(name, "worker.Worker", *options, self.master)
        registered = lambda: self._log("master").count("Registering worker") > before  # noqa: E731
        eventually(registered, what=f"{name} is registered")

    def kill_worker(self) -> None:
        """Kill the worker that was started first, with its executors."""
        worker = self._processes.pop(1)
        for executor in children(worker.pid):
            os.kill(executor, signal.SIGKILL)
        worker.kill()
        worker.wait(PATIENCE_SECONDS)

    def kill_executor(self) -> None:
        """Kill one executor; its worker stays."""
        executor = eventually(self._executors, what="there is an executor")[0]
        os.kill(executor, signal.SIGKILL)

    def stop(self) -> None:
        """Kill everything."""
        while len(self._processes) > 1:
            self.kill_worker()
        for master in self._processes:
            master.kill()
            master.wait(PATIENCE_SECONDS)

    def _executors(self) -> list[int]:
        return [pid for worker in self._processes[1:] for pid in children(worker.pid)]

    def _run(self, name: str, daemon: str, *options: str) -> None:
        ours = {"PYTHONPATH", "SPARK_CONF_DIR", "PYSPARK_PYTHON"}
        env = {name: value for name, value in os.environ.items() if name not in ours}
        command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{daemon}"]
        # Its log has the registrations only at this level.
        conf = self.folder / "daemon-conf"
        conf.mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *options],
                cwd=self.folder,
                env=env | {"SPARK_CONF_DIR": str(conf)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)

    def _log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""


def children(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started."""
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def packed_environment(folder: Path) -> Path:
    """Pack an environment for executors: PySpark's own packages in their pinned versions."""
    pins = (REPOSITORY / "requirements/dev.txt").read_text()
    versions = [re.search(rf"^{name}==\S+", pins, re.MULTILINE) for name in PACKAGES]
    packages = [version[0] for version in versions if version is not None]
    uv = Path(sys.executable).with_name("uv")
    environment, archive = folder / "environment", folder / "environment.tar.gz"
    commands: list[list[str | Path]] = [
        [uv, "venv", "--no-config", "--python", sys.executable, environment],
        [uv, "pip", "install", "--no-config", "--python", environment, *packages, VENV_PACK],
        [environment / "bin/venv-pack", "--prefix", environment, "--output", archive],
    ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    return archive


def configuration(folder: Path, archive: Path) -> Path:
    """Write the folder of settings for drivers, with executors' packed environment; return it."""
    conf = folder / "driver-conf"
    conf.mkdir()
    ours = (REPOSITORY / "tests/spark/spark-defaults.conf").read_text()
    (conf / "spark-defaults.conf").write_text(
        f"{ours}{DEFAULTS}spark.archives {archive}#environment\n"
    )
    return conf
