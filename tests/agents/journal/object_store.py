"""A store with the faults of object stores, at the level of the storage protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from arrester.agents.journal.storage import FileExists


class ObjectStore:
    """Files of one bucket. Two drivers have an object each and share `files`.

    There is no rename, and a file appears when its upload is completed. Without `conditional` an
    upload replaces what another writer uploaded meanwhile. A listing is `late`: it omits the newest
    files, which a read by name finds.
    """

    def __init__(
        self, files: dict[str, bytes] | None = None, *, conditional: bool = True, late: int = 0
    ) -> None:
        self.root = "s3a://bucket/checkpoint"
        self.remedy = "Use another store."
        self.files = {} if files is None else files
        self.conditional = conditional
        self.late = late
        #: The operations so far.
        self.operations: list[str] = []

    def read(self, path: str) -> bytes | None:
        self.operations.append("read")
        return self.files.get(path)

    def create(self, path: str, content: bytes) -> None:
        self.draft(path, content)()

    def draft(self, path: str, content: bytes) -> Callable[[], None]:
        if not self.conditional and self.exists(path):
            raise FileExists(path)
        return partial(self._upload, path, content)

    def _upload(self, path: str, content: bytes) -> None:
        self.operations.append("upload")
        if not self.conditional:
            self.files[path] = content
        # As one operation of the store: two drivers share the dictionary and not the lock.
        elif self.files.setdefault(path, content) is not content:
            raise FileExists(path)

    def exists(self, path: str) -> bool:
        self.operations.append("exists")
        return path in self.files or any(each.startswith(f"{path}/") for each in list(self.files))

    def names(self, path: str) -> list[str]:
        self.operations.append("list")
        prefix = f"{path}/" if path else ""
        listed = list(self.files)[: len(self.files) - self.late]
        inside = (each.removeprefix(prefix) for each in listed if each.startswith(prefix))
        return sorted({each.partition("/")[0] for each in inside})

    def delete(self, path: str) -> None:
        self.operations.append("delete")
        for each in list(self.files):
            if each == path or each.startswith(f"{path}/"):
                self.files.pop(each, None)
