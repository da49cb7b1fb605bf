"""Records of dead letters, read from files or topics on request and kept for a short time."""

from __future__ import annotations

from arrester.controlplane.dead_letter_records.files import RecordUnavailable
from arrester.controlplane.dead_letter_records.requests import (
    Record,
    State,
    fulfil,
    request,
)

__all__ = ["Record", "RecordUnavailable", "State", "fulfil", "request"]
