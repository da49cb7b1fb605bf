"""The stores that sinks write into, with what several kinds have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.definition.stores.staged_write import StagedWrite
from arrester.domain.errors import ArresterError

if TYPE_CHECKING:
    from arrester.agents.definition.stores.jdbc_call import JdbcCall

#: Raises where the sink would, and leaves nothing visible.
ProbeFunction = Callable[[DataFrame], object]
#: Gives the name of a new folder, which is deleted after the block.
ScratchFolder = Callable[[], AbstractContextManager[str]]


class SinkStore(ABC):
    """What a sink writes into; it has no numbers and nothing to check unless it overrides that."""

    __slots__ = ()

    @property
    @abstractmethod
    def label(self) -> str:
        """What a person calls it: `table flights`."""

    @property
    def folder(self) -> str | None:
        """The folder that it writes into, if it is known."""
        return None

    def at(self, checkpoint: str) -> SinkStore:
        """Return the store for the numbers of a checkpoint, by its id."""
        return self

    def check(self, spark: SparkSession) -> None:  # noqa: B027 (a default)
        """Raise InvalidValue if it cannot be written."""

    def check_start(self, spark: SparkSession, *, first: bool) -> None:  # noqa: B027 (a default)
        """Raise if a run cannot begin; `first`: no micro-batch is planned yet."""

    def delete_staged(self, spark: SparkSession) -> None:  # noqa: B027 (a default)
        """Delete what earlier runs at this checkpoint staged; never raises."""

    def check_last_number(self, spark: SparkSession, latest: int) -> None:  # noqa: B027 (a default)
        """Raise LaterNumberWritten if it has a later number than the `latest` used one."""

    def is_atomic(self, spark: SparkSession) -> bool:
        """Whether writes in this session are all or nothing."""
        return True


class BatchStore(SinkStore):
    """Files, a table, a topic, or the author's function: called with rows and their number.

    It has no probe and no known constraints unless it overrides that.
    """

    __slots__ = ()

    #: The writes are numbered, and a failure without a refused record is of the store.
    finds_all_refused: ClassVar[bool] = False
    #: The failure of a row has a SQLSTATE that is fatal otherwise.
    is_database: ClassVar[bool] = False
    #: `refused` finds the rows that constraints of the store refuse.
    has_known_constraints: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, df: DataFrame, number: int) -> object:
        """Write one micro-batch, or one chunk of held records."""

    def at(self, checkpoint: str) -> BatchStore:
        """Return the store for the numbers of a checkpoint, by its id."""
        return self

    def probe(self, scratch: ScratchFolder) -> ProbeFunction | None:
        """Return its probe, which may write into scratch folders; None: it has none."""
        return None

    def refused(self, rows: DataFrame) -> DataFrame:
        """Return the rows that known constraints refuse, with the columns REASON."""
        raise NotImplementedError  # Called only with has_known_constraints.

    def reads_once(self, spark: SparkSession) -> bool:
        """Whether a write in this session reads each row once."""
        return True

    def can_stage(self, spark: SparkSession) -> bool:
        """Whether it can stage the rows of a write in this session."""
        return False

    def open_staged_write(self, spark: SparkSession) -> StagedWrite:
        """Return a new write."""
        raise NotImplementedError  # Called only if it can stage.

    def open_call(self) -> JdbcCall | None:
        """Return a call that stages its rows once; None: each write reads them."""
        return None


class TableReplaced(ArresterError):
    """Another table has the name of the one that the run wrote into."""


class NumberedTable(BatchStore):
    """A table that stores the numbers of its writes."""

    __slots__ = ()

    table: str
    finds_all_refused = True

    @property
    def label(self) -> str:
        """`table flights`."""
        return f"table {self.table}"


class WritesIntoFolder(BatchStore):
    """A store whose probe writes the same into a scratch folder."""

    __slots__ = ()

    @abstractmethod
    def write_into(self, df: DataFrame, folder: str) -> None:
        """Write the rows into a folder that must not exist."""

    def probe(self, scratch: ScratchFolder) -> ProbeFunction:
        """Return a function that writes into a scratch folder."""

        def write(rows: DataFrame) -> None:
            with scratch() as folder:
                self.write_into(rows, folder)

        return write
