"""The command lines of the tools, with their settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.job import FIELDS, PARTITIONS, Job
from tests.ports import free_port
from tests.services import REPOSITORY

_HERE = Path(__file__).parent
_HEAP = "-Xmx2g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One row of the table."""

    name: str
    command: Callable[[Job], list[str]]
    #: Whether it writes files; else a topic.
    files: bool
    #: Whether its process ends after the last record.
    ends: bool
    #: Whether it writes dead letters; else it drops malformed records.
    dead_letters: bool = True


def _arrester(job: Job, *, kind: str, output: str) -> list[str]:
    places = (job.input.topic, job.dead_letters, str(job.folder / "checkpoint"), kind, output)
    return [sys.executable, "-m", "benchmarks.peers.pipeline", job.broker.servers, *places]


def _arrester_files(job: Job) -> list[str]:
    return _arrester(job, kind="files", output=str(job.files))


def _arrester_topic(job: Job) -> list[str]:
    return _arrester(job, kind="topic", output=job.output)


def _connect(job: Job) -> list[str]:
    job.files.mkdir()
    worker = {
        "bootstrap.servers": job.broker.servers,
        "listeners": f"http://127.0.0.1:{free_port()}",
        "offset.storage.file.filename": job.folder / "offsets",
        "plugin.discovery": "service_load",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    connector = {
        "name": job.name,
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        # They share a file: each line is one write, which the system appends.
        "tasks.max": PARTITIONS,
        "topics": job.input.topic,
        "file": job.files / "records",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": job.dead_letters,
        "errors.deadletterqueue.topic.replication.factor": 1,
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    files = (_properties(job, "worker", worker), _properties(job, "connector", connector))
    return [*_java("peers-connect"), "org.apache.kafka.connect.cli.ConnectStandalone", *files]


def _streams(job: Job) -> list[str]:
    continues = "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler"
    settings = {
        "application.id": job.name,
        "bootstrap.servers": job.broker.servers,
        "state.dir": job.folder / "state",
        "num.stream.threads": PARTITIONS,
        "deserialization.exception.handler": continues,
        "errors.dead.letter.queue.topic.name": job.dead_letters,
    }
    file = _properties(job, "streams", settings)
    program = str(_HERE / "CopyRecords.java")
    return [*_java("peers-streams"), program, file, job.input.topic, job.output]


def _flink(job: Job) -> list[str]:
    source = {
        "connector": "kafka",
        "topic": job.input.topic,
        "properties.bootstrap.servers": job.broker.servers,
        "properties.group.id": job.name,
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "json",
        "json.ignore-parse-errors": "true",
    }
    sink = {"connector": "filesystem", "path": job.files.as_uri(), "format": "json"}
    statements = (
        f"SET parallelism.default = {PARTITIONS}",
        _table("records", source),
        _table("output", sink),
        "INSERT INTO output SELECT * FROM records",
    )
    return [*_java("peers-flink"), str(_HERE / "RunSql.java"), _sql(job, statements)]


def _table(name: str, options: Mapping[str, str]) -> str:
    columns = ", ".join(f"`{field}` {kind}" for field, kind in FIELDS.items())
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({properties})"


def _sql(job: Job, statements: tuple[str, ...]) -> str:
    return str(job.write("statements.sql", ";\n".join(statements)))


def _properties(job: Job, name: str, settings: Mapping[str, object]) -> str:
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    return str(job.write(f"{name}.properties", text))


@cache
def _java(part: str) -> tuple[str, ...]:
    """Return the beginning of a command line with the archives of a part."""
    command = ["scripts/jars", part]
    folder = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
    java = f"{os.environ['JAVA_HOME']}/bin/java"
    return (java, _HEAP, "-cp", f"{folder.decode().strip()}/*")


def _version(part: str) -> str:
    """Return the version of the first artifact, which names the part."""
    artifacts = (REPOSITORY / "tests" / "jars" / f"{part}.xml").read_text()
    return str(re.findall(r'<dependency .* rev="(.+?)"', artifacts)[0])


_ARRESTER = f"Arrester on Spark {version('pyspark')}"
_CONNECT = f"Kafka Connect {_version('peers-connect')}"
_STREAMS = f"Kafka Streams {_version('peers-streams')}"
_FLINK = f"Flink SQL {_version('peers-flink')}"
TOOLS = (
    Tool(name=f"{_ARRESTER}, files", command=_arrester_files, files=True, ends=True),
    Tool(name=f"{_CONNECT}, file", command=_connect, files=True, ends=False),
    Tool(name=f"{_FLINK}, files", command=_flink, files=True, ends=True, dead_letters=False),
    Tool(name=f"{_ARRESTER}, topic", command=_arrester_topic, files=False, ends=True),
    Tool(name=f"{_STREAMS}, topic", command=_streams, files=False, ends=False),
)
