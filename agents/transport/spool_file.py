"""The SQLite file of a spool: its tables, and the version of their format."""

from __future__ import annotations

import sqlite3
from pathlib import Path

#: The version of the file's format, as SQLite's user_version. Files of 0.2.0 and later stay
#: readable; an earlier file has none.
FORMAT = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS batch (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    count INTEGER NOT NULL,
    events BLOB NOT NULL
);
-- Apart, so that noting an entry does not write the events again; always the oldest batches.
CREATE TABLE IF NOT EXISTS sent (
    number INTEGER PRIMARY KEY,
    entry TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS confirmed (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE
);
-- What flowed through a run in a minute, until it is an event.
CREATE TABLE IF NOT EXISTS flow (
    checkpoint TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    pipeline TEXT NOT NULL,
    instance BLOB NOT NULL,
    measured BLOB NOT NULL,
    PRIMARY KEY (checkpoint, epoch, minute)
);
-- The same of a micro-batch that Spark has not committed, or of a journal entry.
CREATE TABLE IF NOT EXISTS flow_pending (
    checkpoint TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    kind TEXT NOT NULL,
    number INTEGER NOT NULL,
    pipeline TEXT NOT NULL,
    instance BLOB NOT NULL,
    measured BLOB NOT NULL,
    PRIMARY KEY (checkpoint, epoch, kind, number)
);
"""


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a spool's file, which is created if it is missing.

    Raises sqlite3.Error if the disk refuses or another version wrote the file.
    """
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        # Takes effect in a new file only, and before its first table.
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        check_format(database)
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(_SCHEMA)
    except sqlite3.Error:
        database.close()
        raise
    return database


def check_format(database: sqlite3.Connection, schema: str = "main") -> None:
    """Set the format's version in a new file; raise sqlite3.DatabaseError for another version."""
    [tables] = database.execute(f"SELECT count(*) FROM {schema}.sqlite_master").fetchone()
    [version] = database.execute(f"PRAGMA {schema}.user_version").fetchone()
    if not tables:
        database.execute(f"PRAGMA {schema}.user_version = {FORMAT}")
    elif version != FORMAT:
        written = "a version before 0.2.0" if not version else f"format {version}"
        raise sqlite3.DatabaseError(f"written by {written}; this version reads format {FORMAT}")
