"""Where the schemas of framed values come from: a registry, or a folder of files."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.arguments import check_mapping
from arrester.agents.schema_registry.errors import SchemaRegistryUnavailable
from arrester.controlplane.domain.errors import InvalidValue

#: Returns the texts of schemas by id, the newest last; raises SchemaRegistryUnavailable.
LookUp = Callable[[], Mapping[int, str]]

#: A registry that hangs delays a micro-batch by so much at most.
_TIMEOUT_SECONDS: Final = 5
_NOT_FOUND: Final = 404
_AVRO: Final = "AVRO"
_SUFFIX: Final = ".avsc"


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedAvro:
    """Framed Avro values, for `deserialize`: what `SchemaRegistry.avro` returns."""

    value: Column
    #: The schema of the result; None: the newest one at the start.
    schema: str | None
    look_up: LookUp
    #: Where the schemas come from, for messages.
    origin: str

    def __str__(self) -> str:
        return f"framed Avro in {self.value}, with the schemas of {self.origin}"


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
        #: Without user and password.
        self._url = _without_user(given.get("url"))
        self._client = _client({"timeout": _TIMEOUT_SECONDS, "max.retries": 0, **given})
        weakref.finalize(self, self._client.close)
        #: A version never changes: its schema id and text, None if it is no Avro schema.
        self._versions: dict[tuple[str, int], tuple[int, str] | None] = {}

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
        subjects = [subject] if isinstance(subject, str) else list(subject)
        if not subjects or not all(subjects):
            raise InvalidValue("avro: subject", subject, "the name of a subject, or several names")

        def look_up() -> Mapping[int, str]:
            found: dict[int, str] = {}
            for each in reversed(subjects):
                for id, text in self._avro_versions(each):
                    # Subjects may share a schema: it counts where it comes last.
                    found.pop(id, None)
                    found[id] = text
            return found

        return FramedAvro(
            value=F.col(value) if isinstance(value, str) else value,
            schema=schema,
            look_up=look_up,
            origin=f"the registry {self._url} under {', '.join(subjects)}",
        )

    def _avro_versions(self, subject: str) -> list[tuple[int, str]]:
        """Return schema id and text of all versions of a subject, also deleted ones; none for an
        unknown subject."""
        try:
            numbers = self._client.get_versions(subject, deleted=True)
            for number in numbers:
                if (subject, number) not in self._versions:
                    version = self._client.get_version(subject, number, deleted=True)
                    self._versions[subject, number] = _avro(version)
        except Exception as exc:  # errors of HTTP, TLS and OAuth libraries
            if getattr(exc, "http_status_code", None) == _NOT_FOUND:
                return []
            raise SchemaRegistryUnavailable(
                f"the schema registry {self._url} does not answer: {exc}"
            ) from exc
        known = (self._versions[subject, number] for number in numbers)
        return [version for version in known if version is not None]


def _client(configuration: dict[str, Any]) -> Any:
    url = _without_user(configuration.get("url"))
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient(configuration)
    except ImportError as exc:
        allowed = f"one whose client is installed: pip install 'arrester[registry]' ({exc})"
        raise InvalidValue("SchemaRegistry", url, allowed) from exc
    except Exception as exc:  # its own checks, and those of TLS and OAuth
        allowed = f"the configuration of confluent-kafka's SchemaRegistryClient ({exc})"
        raise InvalidValue("SchemaRegistry", url, allowed) from exc


def _without_user(url: object) -> str:
    return re.sub(r"//[^/@]*@", "//", str(url))


def _avro(version: Any) -> tuple[int, str] | None:
    schema = version.schema
    return (version.schema_id, schema.schema_str) if schema.schema_type == _AVRO else None


class SchemaFolder:
    """Schemas in a folder on the driver, one file per schema id: `17.avsc` is Avro schema 17."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        #: A schema id always means the same schema.
        self._texts: dict[int, str] = {}
        if not self._path.is_dir():
            raise InvalidValue("SchemaFolder", str(path), "an existing folder")

    def avro(self, value: str | Column = "value", *, schema: str | None = None) -> FramedAvro:
        """Return the framed Avro records in the column `value`, for `.deserialize(name, …)`.

        As `SchemaRegistry.avro`; the newest schema is the one with the highest id. A file that is
        added later is found before the next micro-batch.
        """
        return FramedAvro(
            value=F.col(value) if isinstance(value, str) else value,
            schema=schema,
            look_up=self._look_up,
            origin=f"the folder {self._path}",
        )

    def _look_up(self) -> Mapping[int, str]:
        files = {
            int(file.stem): file for file in self._path.glob(f"*{_SUFFIX}") if file.stem.isdecimal()
        }
        for id in sorted(files.keys() - self._texts.keys()):
            try:
                self._texts[id] = files[id].read_text("utf-8")
            except (OSError, UnicodeDecodeError) as exc:
                raise SchemaRegistryUnavailable(f"{files[id]} cannot be read: {exc}") from exc
        return dict(sorted(self._texts.items()))
