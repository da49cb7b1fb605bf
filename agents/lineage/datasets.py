"""Names of what a pipeline reads and writes, by the naming rules of OpenLineage."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from arrester.agents.definition.stores.delta_table import DeltaTable
from arrester.agents.definition.stores.files import Files
from arrester.agents.definition.stores.iceberg_table import IcebergTable
from arrester.agents.definition.stores.jdbc_store import JdbcStore
from arrester.agents.definition.stores.kafka_topic import KafkaTopic
from arrester.agents.spark.jvm.plans.source_plan import leaves_of, paths_of
from arrester.agents.spark.sources.kafka_source import BOOTSTRAP, kafka_sources

#: Schemes of object stores, whose names are keys; Hadoop has several for one store.
_STORES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs"}
_JDBC_POSTGRESQL: Final = "jdbc:postgresql:"
#: The most inputs that are named; a source may have thousands of folders.
_MOST: Final = 100


class Dataset(NamedTuple):
    """A dataset: `kafka://broker:9092` and `flights`."""

    namespace: str
    name: str


def inputs_of(pipeline: Pipeline) -> list[Dataset]:
    """Return the topics and folders that the source of a pipeline reads, as far as its plan names
    them."""
    found = [
        _topic(",".join(sorted(source.servers)), topic)
        for source in kafka_sources(pipeline.source)
        for topic in sorted(source.topics)
    ]
    for leaf in leaves_of(pipeline.source):
        found += map(_files, paths_of(pipeline.source, leaf))
    return list(dict.fromkeys(found))[:_MOST]


def outputs_of(pipeline: Pipeline) -> list[Dataset]:
    """Return what the sink of a pipeline writes into; nothing if only its code names it."""
    store = pipeline.sink.function if isinstance(pipeline.sink, Sink) else None
    if isinstance(store, DeltaTable | IcebergTable):
        return [_files(store.location(pipeline.source.sparkSession))]
    if isinstance(store, Files):
        return [_files(store.path)]
    if isinstance(store, KafkaTopic):
        return [_topic(store.options.get(BOOTSTRAP, ""), store.topic)]
    if isinstance(store, JdbcStore):
        return _table(store.address, store.table)
    return []


def _topic(servers: str, topic: str) -> Dataset:
    """Return a topic. Its cluster has the name of one of its servers."""
    return Dataset(f"kafka://{servers.split(',')[0].strip()}", topic)


def _files(path: str) -> Dataset:
    parts = urlsplit(path)
    scheme = _STORES.get(parts.scheme)
    if scheme is not None:
        return Dataset(f"{scheme}://{parts.netloc}", parts.path.strip("/") or "/")
    name = parts.path.rstrip("/") or "/"
    if parts.scheme in ("", "file"):
        return Dataset("file", name)
    # The user in front of the host is the container of an Azure store.
    return Dataset(f"{parts.scheme}://{parts.netloc}", name)


def _table(address: str, table: str) -> list[Dataset]:
    """Return a table of PostgreSQL; nothing for an address without host and database."""
    if not address.startswith(_JDBC_POSTGRESQL):
        return []
    parts = urlsplit(address.removeprefix("jdbc:"))
    database = parts.path.strip("/")
    if not parts.hostname or not database:
        return []
    name = table.replace('"', "")
    name = name if "." in name else f"public.{name}"
    return [Dataset(f"postgres://{parts.hostname}:{parts.port or 5432}", f"{database}.{name}")]
