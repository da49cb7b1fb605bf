"""The store that a sink writes into, with what all kinds of stores have in common."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from arrester.agents.definition.jdbc_call import JdbcCall

#: Raises where the sink would, and leaves nothing visible.
ProbeFunction = Callable[[DataFrame], object]
#: Gives the name of a new folder, which is deleted after the block.
ScratchFolder = Callable[[], AbstractContextManager[str]]


class SinkStore:
    """Files, a table, a topic, or the author's function: called with rows and their number.

    A kind of store overrides what differs from the defaults here: a store without numbers, probe
    and known constraints.
    """

    __slots__ = ()

    #: The writes are numbered, and a failure without a refused record is of the store.
    finds_all_refused: ClassVar[bool] = False
    #: The failure of a row has a SQLSTATE that is fatal otherwise.
    is_database: ClassVar[bool] = False
    #: `refused` finds the rows that constraints of the store refuse.
    has_known_constraints: ClassVar[bool] = False

    def __call__(self, df: DataFrame, number: int) -> None:
        """Write one micro-batch, or one chunk of held records."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """What a person calls it: `table flights`."""
        raise NotImplementedError

    @property
    def folder(self) -> str | None:
        """The folder that it writes into, if it is known."""
        return None

    def at(self, checkpoint: str) -> SinkStore:
        """Return the store for the numbers of a checkpoint, by its id."""
        return self

    def check(self, spark: SparkSession) -> None:
        """Raise InvalidValue if it cannot be written."""

    def check_start(self, spark: SparkSession, *, first: bool) -> None:
        """Raise if a run cannot begin; `first`: no micro-batch is planned yet."""

    def check_last_number(self, spark: SparkSession, latest: int) -> None:
        """Raise LaterNumberWritten if it has a later number than the `latest` used one."""

    def is_atomic(self, spark: SparkSession) -> bool:
        """Whether writes in this session are all or nothing."""
        return True

    def probe(self, scratch: ScratchFolder) -> ProbeFunction | None:
        """Return its probe, which may write into scratch folders; None: it has none."""
        return None

    def refused(self, rows: DataFrame) -> DataFrame:
        """Return the rows that constraints refuse, with the columns REASON."""
        raise NotImplementedError

    def open_call(self) -> JdbcCall | None:
        """Return a call that stages its rows once; None: each write reads them."""
        return None


class WritesIntoFolder(SinkStore):
    """A store whose probe writes the same into a scratch folder."""

    __slots__ = ()

    def write_into(self, df: DataFrame, folder: str) -> None:
        """Write the rows into a folder that must not exist."""
        raise NotImplementedError

    def probe(self, scratch: ScratchFolder) -> ProbeFunction:
        """Return a function that writes into a scratch folder."""

        def write(rows: DataFrame) -> None:
            with scratch() as folder:
                self.write_into(rows, folder)

        return write
