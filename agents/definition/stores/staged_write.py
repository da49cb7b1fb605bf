"""A write whose rows are staged first and become visible later."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import DataFrame


class StagedWrite(ABC):
    """Rows that a store has and does not show yet. Use it in a `with` block, whose end discards
    them."""

    __slots__ = ()

    def __enter__(self) -> StagedWrite:
        return self

    def __exit__(self, *exc: object) -> None:
        self.discard()

    @abstractmethod
    def stage(self, df: DataFrame, number: int) -> None:
        """Write the rows of a number where no reader sees them. It is called once, and reads them
        once."""

    @abstractmethod
    def publish(self, number: int) -> None:
        """Show the staged rows under their number: all of them, or none. It does not
        read them again."""

    @abstractmethod
    def discard(self) -> None:
        """Delete what is staged; never raises."""
