"""Queue names and options of the Celery workers, for processes that do not load Celery."""

from __future__ import annotations

#: Separate queues: folds must not wait while a base is verified, which may take minutes.
FOLDS, HOUSEKEEPING = "arrester", "arrester-housekeeping"

#: What the workers of Celery exchange is not needed here. Each option removes a step that retries
#: forever if Redis ends while it starts: such a worker would outlive a killed `up`.
WORKER_OPTIONS = ("--without-mingle", "--without-gossip", "--without-heartbeat")
