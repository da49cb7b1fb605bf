"""The names of Celery's queues, for processes that do not load Celery."""

from __future__ import annotations

#: Separate queues: folds must not wait while a base is verified, which may take minutes.
FOLDS, HOUSEKEEPING = "arrester", "arrester-housekeeping"
