"""Names of the standard library that Python 3.10 lacks, the oldest version of the agent."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from datetime import UTC as UTC
    from enum import StrEnum as StrEnum
else:
    from datetime import timezone
    from enum import Enum

    UTC = timezone.utc

    class StrEnum(str, Enum):
        """An enumeration of texts, each written as its value."""

        def __str__(self) -> str:
            return str(self.value)

        def __format__(self, format_spec: str) -> str:
            return format(str(self.value), format_spec)
