"""Sessions in PostgreSQL by the hash of their key: a dump contains no cookie that logs in."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from django.contrib.sessions.backends import db
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db.models import QuerySet
from django.utils import timezone

#: The length of Django's column. A key has 165 random bits.
_LENGTH: Final = 40


def stored_key(key: str) -> str:
    """Return what the table has of the key of a session."""
    return hashlib.sha256(key.encode()).hexdigest()[:_LENGTH]


class SessionStore(db.SessionStore):
    """Django's sessions in the database, by the hash of the key."""

    def exists(self, session_key: str) -> bool:
        """Return whether a session has this key."""
        return super().exists(stored_key(session_key))

    async def aexists(self, session_key: str) -> bool:
        """Return whether a session has this key."""
        return await super().aexists(stored_key(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        """Return the row of the session."""
        return _with_stored_key(super().create_model_instance(data))

    async def acreate_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        """Return the row of the session."""
        return _with_stored_key(await super().acreate_model_instance(data))

    def delete(self, session_key: str | None = None) -> None:
        """Delete a session, by default this one."""
        key = session_key or self.session_key
        if key is not None:
            super().delete(stored_key(key))

    async def adelete(self, session_key: str | None = None) -> None:
        """Delete a session, by default this one."""
        key = session_key or self.session_key
        if key is not None:
            await super().adelete(stored_key(key))

    def _get_session_from_db(self) -> AbstractBaseSession | None:
        found = self._rows().first()
        if found is None:
            self._session_key = None
        return found

    async def _aget_session_from_db(self) -> AbstractBaseSession | None:
        found = await self._rows().afirst()
        if found is None:
            self._session_key = None
        return found

    def _rows(self) -> QuerySet[AbstractBaseSession]:
        key = stored_key(self.session_key or "")
        rows: QuerySet[AbstractBaseSession] = self.model.objects.filter(
            session_key=key, expire_date__gt=timezone.now()
        )
        return rows


def _with_stored_key(row: AbstractBaseSession) -> AbstractBaseSession:
    row.session_key = stored_key(row.session_key)
    return row
