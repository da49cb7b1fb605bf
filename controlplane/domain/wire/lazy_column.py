"""A lazy column: unpacked when a value is read."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from arrester.controlplane.domain.errors import MalformedBatch

T = TypeVar("T")


class Later(Generic[T]):
    """A column that is unpacked when one of its values is read; most never are."""

    __slots__ = ("_decoder", "_raw", "_values")

    def __init__(self, raw: msgspec.Raw, decoder: msgspec.msgpack.Decoder[list[T]]) -> None:
        self._raw, self._decoder = raw, decoder
        self._values: list[T] | None = None

    def all(self) -> list[T]:
        """Return the values; raises MalformedBatch if they are invalid."""
        if self._values is None:
            try:
                self._values = self._decoder.decode(self._raw)
            except msgspec.DecodeError as exc:
                raise MalformedBatch(f"not a packed column: {exc}") from exc
        return self._values

    def __getitem__(self, place: int) -> T:
        return self.all()[place]

    def __eq__(self, other: object) -> bool:
        return self.all() == (other.all() if isinstance(other, Later) else other)
