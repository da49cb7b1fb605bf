"""The confirmations of one spool: with pinned keys of the server, only signed ones count."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from uuid import UUID

from arrester.agents.transport.redis_client import SIGNED_AT_ONCE, RedisClient
from arrester.agents.transport.server_keys import ServerKeys
from arrester.domain.wire.signed_messages import SERVER_KEY

log = logging.getLogger("arrester.signatures")

#: The time between two removals of unsigned confirmations. Their batches are sent again after each,
#: so a wrong key must not make that a loop without a pause.
REMOVAL_SECONDS = 60.0


class Confirmations:
    """Read confirmations, and delete them once they are recorded in the spool.

    A refused confirmation is deleted, and its batch counts as lost: it is sent again, and a server
    that has it already confirms it with a signature.
    """

    def __init__(self, redis: RedisClient, spool: UUID) -> None:
        self._redis = redis
        self._spool = spool
        self._signed: list[bytes] = []
        self._next_removal = 0.0
        self._logged = False

    def read(self) -> list[UUID]:
        """Return some batches that the server has committed."""
        keys = self._redis.keys
        if keys is None:
            return self._redis.confirmations(self._spool)
        # The server adds both in one step. If the plain ones are read first, no signed one of
        # theirs is missing.
        checks_plain = time.monotonic() >= self._next_removal
        plain = self._redis.confirmations(self._spool) if checks_plain else []
        records = self._redis.signed_confirmations(self._spool)
        checked = [(record, keys.confirmed(self._spool, record)) for record in records]
        self._signed = [record for record, ids in checked if ids is not None]
        confirmed = [id for _, ids in checked for id in ids or ()]
        forged = [record for record, ids in checked if ids is None]
        unsigned: set[UUID] = set()
        if checks_plain and len(records) < SIGNED_AT_ONCE:
            unsigned = {*plain}.difference(confirmed)
            self._next_removal = time.monotonic() + REMOVAL_SECONDS
        if forged or unsigned:
            self._refuse(keys, forged, unsigned)
        return confirmed

    def forget(self, batches: Sequence[UUID]) -> None:
        """Delete the confirmations that `read` returned."""
        self._redis.forget_confirmations(self._spool, batches)
        self._redis.forget_signed_confirmations(self._spool, self._signed)
        self._signed = []

    def _refuse(self, keys: ServerKeys, forged: list[bytes], unsigned: set[UUID]) -> None:
        self._redis.forget_confirmations(self._spool, unsigned)
        self._redis.forget_signed_confirmations(self._spool, forged)
        self._redis.forget_sent(self._spool)
        keys.refused += len(forged) + len(unsigned)
        if not self._logged:
            log.warning(
                "%s confirmations have no valid signature of the server and are removed; their "
                "batches are sent again: they are forged, or of an older server, or %s is the key "
                "of another server",
                len(forged) + len(unsigned),
                SERVER_KEY,
            )
            self._logged = True
