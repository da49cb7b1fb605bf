"""Names of applications, pipelines and tasks, and the two forms of a task's identity."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Annotated

import msgspec

from arrester.domain.errors import InvalidValue
from arrester.domain.events import Run

NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
NAME_RULE = "1 to 63 of a-z 0-9 . - and starting with a letter or digit"
KEY_MAX_BYTES = 512
#: `TaskId.digest`, in URLs and filters.
TaskDigest = Annotated[str, msgspec.Meta(description="The id of a task.")]


def check_name(kind: str, value: object) -> str:
    """Return `value` if it is a valid name of an application or a pipeline, else raise
    InvalidValue."""
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise InvalidValue(kind, value, NAME_RULE)
    return value


def bounded_key(key: str) -> str:
    """Return `key` itself up to 512 bytes of UTF-8, else a prefix of it and its SHA-256.

    Two different long keys stay different; Spark computes the same text on the executors.
    """
    if not is_long(key):
        return key
    return f"{key[:64]}…{hashlib.sha256(key.encode()).hexdigest()}"


def is_long(key: str) -> bool:
    """Return whether `key` cannot come from an agent: `bounded_key` would change it."""
    return len(key.encode()) > KEY_MAX_BYTES


class TaskId(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The identity of a task: one partition, or one key, of a pipeline on one checkpoint.

    `key` is None for the task without a key: the global task of a pipeline that has no task column,
    and that of the records whose task column is NULL.
    """

    application: str
    pipeline: str
    checkpoint: str
    key: str | None = None

    @property
    def printed(self) -> str:
        """The display name, `delays_JFK`; not unique, never parsed."""
        return f"{self.pipeline} (no key)" if self.key is None else f"{self.pipeline}_{self.key}"

    @property
    def digest(self) -> TaskDigest:
        """The opaque name for URLs and tables: 32 hexadecimal digits that never change."""
        return task_digest(self.application, self.pipeline, self.checkpoint, self.key)


def task_id(application: str, run: Run, key: str | None) -> TaskId:
    """Return the identity of a task of a run."""
    return TaskId(
        application=application, pipeline=run.pipeline, checkpoint=run.checkpoint, key=key
    )


def task_digest(application: str, pipeline: str, checkpoint: str, key: str | None) -> str:
    """Return the digest of the task with this identity."""
    # The cache is limited in number, so its entries must be limited in size.
    if key is not None and is_long(key):
        return _digest.__wrapped__(application, pipeline, checkpoint, key)
    return _digest(application, pipeline, checkpoint, key)


@lru_cache(maxsize=10_000)
def _digest(application: str, pipeline: str, checkpoint: str, key: str | None) -> str:
    parts = [application, pipeline, checkpoint]
    parts += [] if key is None else [key]
    # Lengths before the texts: no two different lists of parts give the same bytes.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
