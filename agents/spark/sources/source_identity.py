"""The identity of a static source: its columns, and its files or its number of rows."""

from __future__ import annotations

import msgspec
from pyspark.sql import DataFrame

from arrester.agents.spark.jvm.plans.source_plan import files_scanned

#: The largest number of files that a message names.
_NAMED_FILES = 3


class SourceIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts by which a repeated run recognizes its source."""

    #: The columns with their types.
    columns: str
    #: By path: the length in bytes, and the modification time in milliseconds.
    files: dict[str, tuple[int, int]] = {}
    #: The number of rows, for a source that is not made of files alone.
    rows: int | None = None

    def difference(self, now: SourceIdentity) -> str | None:
        """Return how the source differs `now`, None if it is the same."""
        if self.columns != now.columns:
            return f"its columns were {self.columns} and are {now.columns}"
        changed = {
            "missing": self.files.keys() - now.files.keys(),
            "new": now.files.keys() - self.files.keys(),
            "changed": {
                path
                for path in self.files.keys() & now.files.keys()
                if self.files[path] != now.files[path]
            },
        }
        differences = [f"{_with_verb(paths)} {kind}" for kind, paths in changed.items() if paths]
        if self.rows != now.rows and not differences:
            return f"it had {self.rows} rows and has {now.rows}"
        return "; ".join(differences) or None


def _with_verb(paths: set[str]) -> str:
    first = sorted(paths)[:_NAMED_FILES]
    more = "" if len(paths) == len(first) else f" and {len(paths) - len(first)} more"
    return f"{', '.join(first)}{more} {'is' if len(paths) == 1 else 'are'}"


def identity_of(source: DataFrame) -> SourceIdentity:
    """Return the identity of a static source; a Spark job counts the rows of one without files."""
    files, only_files = files_scanned(source)
    rows = None if files and only_files else source.count()
    return SourceIdentity(columns=source.schema.simpleString(), files=files, rows=rows)
