"""Where the schemas of framed values come from: a registry, or a folder of files."""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.arguments import check_mapping
from arrester.agents.schema_registry.errors import SchemaRegistryUnavailable
from arrester.agents.schema_registry.framed_values import (
    FIRST_MESSAGE,
    FramedAvro,
    FramedProtobuf,
    checked_message,
)
from arrester.domain.errors import InvalidValue

#: A registry that hangs delays a micro-batch by so much at most.
_TIMEOUT_SECONDS: Final = 5
_NOT_FOUND: Final = 404


class SchemaRegistry:
    """A schema registry with Confluent's REST interface: Confluent, Apicurio, Karapace, Redpanda.

    `configuration` is its URL, or the configuration of confluent-kafka's `SchemaRegistryClient`:
    `{"url": …, "basic.auth.user.info": "user:password", "ssl.ca.location": …}`. It needs
    `pip install arrester[registry]` on the driver; executors never call the registry.

    Raises InvalidValue for a configuration that the client refuses.
    """

    def __init__(self, configuration: str | Mapping[str, Any]) -> None:
        given = {"url": configuration} if isinstance(configuration, str) else configuration
        check_mapping("SchemaRegistry", given, 'a URL, or a mapping {"url": …}')
        #: The address, without user and password.
        self._url = _without_user(given.get("url"))
        self._client = _client({"timeout": _TIMEOUT_SECONDS, "max.retries": 0, **given})
        weakref.finalize(self, self._client.close)
        #: A version never changes: its schema id, and its schema.
        self._versions: dict[tuple[str, int], tuple[int, Any]] = {}

    def avro(
        self,
        value: str | Column = "value",
        *,
        subject: str | Sequence[str],
        schema: str | None = None,
    ) -> FramedAvro:
        """Return the framed Avro records in the column `value`, for `.deserialize(name, …)`.

        `subject` names the subject, or several, whose versions the values may have: for the topic
        `flights` usually `flights-value`. The result has the Avro `schema` (JSON text), by default
        the newest version of the first subject at the start; records of other versions are
        resolved to it by Avro's rules. The registry is asked before each micro-batch, so a version
        that is registered later is known. Other schema ids fail as UnknownSchemaId.
        """
        subjects = _checked_subjects("avro", subject)
        return FramedAvro(
            value=_column(value),
            schema=schema,
            look_up=partial(self._look_up, FramedAvro.format, subjects),
            origin=self._origin(subjects),
        )

    def protobuf(
        self,
        value: str | Column = "value",
        *,
        subject: str | Sequence[str],
        message: Sequence[int] = FIRST_MESSAGE,
    ) -> FramedProtobuf:
        """Return the framed Protobuf messages in the column `value`, for `.deserialize(name, …)`.

        `subject` is that of `avro`. The result is the message as bytes, for `from_protobuf` or a
        Python step. `message` is its place in the file of the schema: the index of the message,
        followed by those of messages within it. A value with another place fails as InvalidFrame.
        """
        subjects = _checked_subjects("protobuf", subject)
        return FramedProtobuf(
            value=_column(value),
            message=checked_message(message),
            look_up=partial(self._look_up, FramedProtobuf.format, subjects),
            origin=self._origin(subjects),
        )

    def _origin(self, subjects: Sequence[str]) -> str:
        return f"the registry {self._url} under {', '.join(subjects)}"

    def _look_up(self, format: str, subjects: Sequence[str]) -> Mapping[int, str]:
        found: dict[int, str] = {}
        for subject in reversed(subjects):
            for id, schema in self._schemas(subject):
                if schema.schema_type == format.upper():
                    # Subjects may share a schema: it counts where it comes last.
                    found.pop(id, None)
                    found[id] = schema.schema_str
        return found

    def _schemas(self, subject: str) -> list[tuple[int, Any]]:
        """Return id and schema of all versions of a subject, also deleted ones; none for an
        unknown subject."""
        try:
            numbers = self._client.get_versions(subject, deleted=True)
            for number in numbers:
                if (subject, number) not in self._versions:
                    version = self._client.get_version(subject, number, deleted=True)
                    self._versions[subject, number] = version.schema_id, version.schema
        except Exception as exc:  # errors of HTTP, TLS and OAuth libraries
            if getattr(exc, "http_status_code", None) == _NOT_FOUND:
                return []
            raise SchemaRegistryUnavailable(
                f"the schema registry {self._url} does not answer: {exc}"
            ) from exc
        return [self._versions[subject, number] for number in numbers]


def _client(configuration: dict[str, Any]) -> Any:
    url = _without_user(configuration.get("url"))
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient(configuration)
    except ImportError as exc:
        allowed = f"one whose client is installed: pip install 'arrester[registry]' ({exc})"
        raise InvalidValue("SchemaRegistry", url, allowed) from exc
    except Exception as exc:  # its own checks, and those of TLS and OAuth
        allowed = "the configuration of confluent-kafka's SchemaRegistryClient"
        raise InvalidValue("SchemaRegistry", url, allowed, reason=f"{url}: {exc}") from exc


def _without_user(url: object) -> str:
    return re.sub(r"//[^/@]*@", "//", str(url))


def _checked_subjects(method: str, subject: str | Sequence[str]) -> list[str]:
    subjects = [subject] if isinstance(subject, str) else list(subject)
    if not subjects or not all(subjects):
        allowed = "the name of a subject, or several names"
        raise InvalidValue(f"{method}: subject", subject, allowed)
    return subjects


def _column(value: str | Column) -> Column:
    return F.col(value) if isinstance(value, str) else value


class SchemaFolder:
    """Schemas in a folder on the driver, one file per schema id.

    `17.avsc` is the Avro schema with the id 17, `18.proto` the Protobuf schema with the id 18.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        #: A schema id always means the same schema.
        self._texts: dict[Path, str] = {}
        if not self._path.is_dir():
            raise InvalidValue("SchemaFolder", str(path), "an existing folder")

    def avro(self, value: str | Column = "value", *, schema: str | None = None) -> FramedAvro:
        """Return the framed Avro records in the column `value`, for `.deserialize(name, …)`.

        As `SchemaRegistry.avro`; the newest schema is the one with the highest id. A file that is
        added later is found before the next micro-batch.
        """
        return FramedAvro(
            value=_column(value),
            schema=schema,
            look_up=partial(self._look_up, ".avsc"),
            origin=self._origin,
        )

    def protobuf(
        self, value: str | Column = "value", *, message: Sequence[int] = FIRST_MESSAGE
    ) -> FramedProtobuf:
        """Return the framed Protobuf messages in the column `value`, for `.deserialize(name, …)`.

        As `SchemaRegistry.protobuf`, with the schema ids of the files.
        """
        return FramedProtobuf(
            value=_column(value),
            message=checked_message(message),
            look_up=partial(self._look_up, ".proto"),
            origin=self._origin,
        )

    @property
    def _origin(self) -> str:
        return f"the folder {self._path}"

    def _look_up(self, suffix: str) -> Mapping[int, str]:
        files = {
            int(file.stem): file for file in self._path.glob(f"*{suffix}") if file.stem.isdecimal()
        }
        for file in files.values():
            if file in self._texts:
                continue
            try:
                self._texts[file] = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as exc:
                raise SchemaRegistryUnavailable(f"{file} cannot be read: {exc}") from exc
        return {id: self._texts[file] for id, file in sorted(files.items())}
