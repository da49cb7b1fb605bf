"""What the log has of refused requests: one line."""

from __future__ import annotations

import logging


class NoTraceOfRefusals(logging.Filter):
    """Remove the traceback of a response below 500, such as a 403: it is no fault of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep each record."""
        if getattr(record, "status_code", 500) < 500:
            record.exc_info = record.exc_text = None
        return True
