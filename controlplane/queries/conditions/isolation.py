"""Run each finder of conditions by itself: an exception of one leaves the others.

Its causes are unknown then, so that no open alert of them ends, and a condition reports it. If the
fault is in the data of one application, the conditions of the others are found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import TypeVar
from uuid import UUID

import msgspec
from django.db import InterfaceError, OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from arrester.controlplane.queries.conditions.causes import AlertCause, AllLimits
from arrester.controlplane.queries.conditions.condition import (
    Condition,
    application_path,
    shortened,
)
from arrester.controlplane.queries.conditions.stops import Stop
from arrester.controlplane.redis import redis_client
from arrester.domain.state.states import InstanceState, ThreadState

T = TypeVar("T")
log = logging.getLogger(__name__)
#: The exception of each finder, and of its application, that this process has logged.
_logged: dict[tuple[str, str], str] = {}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What several finders read."""

    threads: Sequence[ThreadState]
    drivers: Mapping[UUID, InstanceState]
    stops: Sequence[Stop] = ()
    limits: AllLimits
    now: datetime

    def by_application(self) -> Iterator[tuple[str, Seen]]:
        """Yield what belongs to each application."""
        names = {
            *(each.application for each in self.threads),
            *(each.application for each in self.drivers.values()),
            *(each.application for each in self.stops),
        }
        for name in sorted(names):
            drivers = {id: each for id, each in self.drivers.items() if each.application == name}
            threads = [each for each in self.threads if each.application == name]
            stops = [each for each in self.stops if each.application == name]
            yield name, msgspec.structs.replace(self, threads=threads, drivers=drivers, stops=stops)


class Search:
    """Runs finders, and collects what they could not find."""

    def __init__(self, *, now: datetime) -> None:
        self.now = now
        #: The causes whose search failed: in all applications, and in single ones.
        self.unknown: set[AlertCause] = set()
        self.unknown_of: set[tuple[str, AlertCause]] = set()
        #: What reports them.
        self.faults: list[Condition] = []
        # Finders only read: after an error in a transaction, the others continue from here.
        self._savepoint = transaction.savepoint() if connection.in_atomic_block else None

    def run(self, name: str, causes: Set[AlertCause], find: Callable[[], Iterable[T]]) -> list[T]:
        """Return what a finder finds; nothing after an exception, which is reported.

        That Redis is away is reported by others.
        """
        try:
            found = [*find()]
        except redis_client.RedisError:
            self.unknown |= causes
            return []
        except Exception as exc:
            self._continue_after(exc)
            self._report(name, causes, exc)
            return []
        _forget(name)
        return found

    def run_on(
        self,
        seen: Seen,
        name: str,
        causes: Set[AlertCause],
        find: Callable[[Seen], Iterable[T]],
    ) -> list[T]:
        """Return what a finder finds; after an exception, of each application by itself."""
        try:
            found = [*find(seen)]
        except Exception as exc:
            self._continue_after(exc)
            if not isinstance(exc.__cause__, QueryCanceled):
                return self._by_application(seen, name, causes, find)
            self._report(name, causes, exc)
            return []
        _forget(name)
        return found

    def _by_application(
        self,
        seen: Seen,
        name: str,
        causes: Set[AlertCause],
        find: Callable[[Seen], Iterable[T]],
    ) -> list[T]:
        found: list[T] = []
        for application, some in seen.by_application():
            try:
                found += [*find(some)]
            except Exception as exc:
                self._continue_after(exc)
                self._report(name, causes, exc, application)
        return found

    def _continue_after(self, exc: Exception) -> None:
        """Make the connection ready for the next finder. Raise the exception again if PostgreSQL
        did not answer, or if the client of the request has left."""
        if isinstance(exc, InterfaceError | OperationalError):
            ended = connection.connection is None or connection.connection.closed
            if ended or getattr(exc.__cause__, "sqlstate", None) is None:
                raise exc
        if self._savepoint is not None:
            transaction.savepoint_rollback(self._savepoint)

    def _report(
        self, name: str, causes: Set[AlertCause], exc: Exception, application: str = ""
    ) -> None:
        # What is more than listed has one cause for all finders.
        unknown = {*causes, AlertCause.MORE_THAN_LISTED}
        if application:
            self.unknown_of |= {(application, each) for each in unknown}
        else:
            self.unknown |= unknown
        error = shortened(f"{type(exc).__name__}: {exc}")
        what = f"{application}: conditions" if application else "Conditions"
        if _logged.get((name, application)) != error:
            _logged[name, application] = error
            log.error("%s are not checked: %s", what, name, exc_info=exc)
        labels = ", ".join(each.label for each in AlertCause if each in causes)
        title = f"{what} are not checked: {name}"
        self.faults.append(
            Condition(
                cause=AlertCause.CONDITIONS_UNKNOWN,
                application=application,
                subject=name,
                name=application or title,
                title=title,
                summary=shortened(f"not checked: {labels}. {error}"),
                detail=shortened(f"{labels}. {error}. The log of the server has the trace."),
                path=application_path(application) if application else "/",
                since=self.now,
            )
        )


def _forget(name: str) -> None:
    """Log the next exception of a finder, even if it is the same."""
    for key in [each for each in _logged if each[0] == name]:
        _logged.pop(key, None)
