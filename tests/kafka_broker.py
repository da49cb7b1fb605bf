"""A real Kafka broker in one process, and Spark's connector, from `scripts/jars`."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from confluent_kafka import KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from arrester.controlplane.embedded import process
from tests import scratch
from tests.kafka_certificates import authority
from tests.kafka_topics import messages_of
from tests.patience import wait_until
from tests.ports import free_port
from tests.services import REPOSITORY

_CLUSTER = "arrester-tests-------w"
_STOP_SECONDS = 30.0
_REQUEST_SECONDS = 30.0
#: As for Spark in the tests: most of it runs once.
_JVM = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dlog4j2.level=WARN"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
#: Retention counts from a record's timestamp, and those of the tests are old.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://localhost:{secured}
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
log.cleaner.backoff.ms=200
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=\
 org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
 org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
"""
#: The account of the secured listener, by SASL/PLAIN and SASL/SCRAM-SHA-512.
USER, PASSWORD = "flights", "not a secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One record to be sent; `at` is its timestamp in milliseconds."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()
    at: int = 1_700_000_000_000


class KafkaBroker:
    """One broker in KRaft mode; it does not create topics by itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.servers = f"127.0.0.1:{self.port}"
        #: The listener with SASL and TLS, and the file of its certificate authority.
        secured = free_port()
        self.secured_servers = f"localhost:{secured}"
        self.authority = authority(folder)
        self.log = folder / "broker.log"
        # The client logs each refused connection while the broker starts.
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self._child: subprocess.Popen[bytes] | None = None
        properties = _PROPERTIES.format(
            port=self.port,
            secured=secured,
            controller=free_port(),
            folder=folder,
            user=USER,
            password=PASSWORD,
        )
        (folder / "server.properties").write_text(properties)

    @property
    def secured_client(self) -> dict[str, str | int]:
        """The settings of a librdkafka client of the secured listener."""
        return {
            "bootstrap.servers": self.secured_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority),
            "log_level": 0,
        }

    def start(self) -> None:
        """Start the broker and wait until it answers; data of an earlier start is kept."""
        properties = self.folder / "server.properties"
        if not (self.folder / "data").exists():
            tool = ("kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", _CLUSTER)
            account = f'SCRAM-SHA-512=[name="{USER}",password="{PASSWORD}"]'
            options = ("--config", properties, "--add-scram", account)
            formatting = process.start([*_java(), *tool, *options], log=self.log)
            assert formatting.wait() == 0, process.last_line(self.log)
        self._child = process.start([*_java(), "kafka.Kafka", properties], log=self.log)
        wait_until(self._answers, what="the Kafka broker")

    def stop(self) -> None:
        if self._child is not None:
            process.stop(self._child, signal.SIGTERM, seconds=_STOP_SECONDS)

    def kill(self) -> None:
        """End the broker with SIGKILL; `start` recovers its data."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()

    def _answers(self) -> bool:
        assert self._child is not None
        assert self._child.poll() is None, f"the broker ended: {self.log.read_text()[-2000:]}"
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def make(self, topic: str, partitions: int = 1) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_REQUEST_SECONDS)
        wait_until(lambda: self.partitions(topic) == partitions)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Let a topic have so many partitions."""
        wanted = NewPartitions(topic, partitions)
        self.admin.create_partitions([wanted])[topic].result(_REQUEST_SECONDS)
        wait_until(lambda: self.partitions(topic) == partitions)

    def configure(self, topic: str, name: str, value: str) -> None:
        """Set one configuration of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([wanted])[wanted].result(_REQUEST_SECONDS)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result(_REQUEST_SECONDS)
        wait_until(lambda: self.partitions(topic) is None)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records before an offset, as retention does."""
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(_REQUEST_SECONDS)

    def deny_writes(self, topic: str) -> None:
        """Deny the account of the secured listener to write to a topic."""
        denied = AclBinding(*self._access(topic), AclOperation.WRITE, AclPermissionType.DENY)
        self.admin.create_acls([denied])[denied].result(_REQUEST_SECONDS)

    def allow_writes(self, topic: str) -> None:
        """Delete what `deny_writes` has denied."""
        denied = AclBindingFilter(*self._access(topic), AclOperation.ANY, AclPermissionType.ANY)
        self.admin.delete_acls([denied])[denied].result(_REQUEST_SECONDS)

    def _access(self, topic: str) -> tuple[ResourceType, str, ResourcePatternType, str, str]:
        return ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*"

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions that have a leader; None for an unknown topic."""
        found = self.admin.list_topics(timeout=_REQUEST_SECONDS).topics.get(topic)
        if found is None:
            return None
        return sum(each.leader >= 0 for each in found.partitions.values())

    def send(self, topic: str, *records: Sent) -> None:
        """Send the records in order."""
        options = {"bootstrap.servers": self.servers, "message.max.bytes": 20_000_000}
        self._send(Producer({**options, "acks": "all"}), topic, records)

    def send_in_transaction(self, topic: str, *records: Sent, commit: bool) -> None:
        """Send the records in a transaction; its end takes an offset too."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "tests"})
        producer.init_transactions(_REQUEST_SECONDS)
        producer.begin_transaction()
        self._send(producer, topic, records)
        end = producer.commit_transaction if commit else producer.abort_transaction
        end(_REQUEST_SECONDS)

    def _send(self, producer: Producer, topic: str, records: Sequence[Sent]) -> None:
        errors: list[object] = []
        for each in records:
            producer.produce(
                topic,
                each.value,
                each.key,
                partition=each.partition,
                timestamp=each.at,
                headers=list(each.headers),
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(_REQUEST_SECONDS) == 0
        assert errors == []

    def messages(self, topic: str) -> list[Message]:
        """Return all messages of a topic, partition by partition."""
        return messages_of(self.servers, topic)


@contextmanager
def running() -> Iterator[KafkaBroker]:
    """Run a broker until the block ends; its log is in its temporary folder."""
    with tempfile.TemporaryDirectory(prefix="arrester-kafka-", dir=scratch.FOLDER) as folder:
        broker = KafkaBroker(Path(folder))
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()


def connector() -> list[Path]:
    """Return the archives of the connector for this Spark; none if they are not downloaded."""
    minor = ".".join(version("pyspark").split(".")[:2])
    return sorted((REPOSITORY / f"build/jars/kafka-{minor}").glob("*.jar"))


def _java() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    jars = subprocess.run(
        ["scripts/jars", "kafka-server"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
    )
    java = f"{home}/bin/java" if home else "java"
    return [java, *_JVM, "-cp", f"{jars.stdout.decode().strip()}/*"]
