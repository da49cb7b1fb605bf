"""The person of a request: its roles, and the confinement of its connection to its applications.

A person without a role on all applications reads the views of the schema `confined` in place of the
tables; see `confined_views`. The person is stored in the context of the request, so each
connection that the request opens is confined too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from django.db import DatabaseError, connection

from arrester.controlplane.access.roles import Role
from arrester.domain.errors import NotFound, NotPermitted

SCHEMA: Final = "confined"
#: The setting of a connection that has the names of the applications, as an array.
SETTING: Final = "arrester.applications"
#: The attribute of Django's connection: the applications that it is confined to.
_STATE: Final = "arrester_confined_to"
Args = ParamSpec("Args")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A user, or a REST token of one, with its roles."""

    name: str
    #: The role on all applications; it also permits to see the server. None: only `roles`.
    role: Role | None
    #: Further roles, by application.
    roles: Mapping[str, Role] = field(default_factory=dict)
    #: The applications of the token; None: no token, or one without a list.
    token_applications: frozenset[str] | None = None

    @property
    def confined(self) -> bool:
        """Whether the person sees only the applications of `roles`."""
        return self.role is None

    @property
    def seen(self) -> frozenset[str] | None:
        """The applications that the person sees; None: all."""
        return None if self.role is not None else frozenset(self.roles)

    @property
    def may_act(self) -> bool:
        """Whether the person may act on any application."""
        return any(each.includes(Role.OPERATOR) for each in self._every_role())

    @property
    def may_act_on_all(self) -> bool:
        """Whether the person may act on all applications."""
        return self.role is not None and self.role.includes(Role.OPERATOR)

    @property
    def is_admin(self) -> bool:
        """Whether the person may manage accounts, alert channels and all applications."""
        return self.role is Role.ADMIN

    @property
    def is_any_admin(self) -> bool:
        """Whether the person may manage any application."""
        return Role.ADMIN in self._every_role()

    @property
    def title(self) -> str:
        """The roles as a text."""
        own = [f"{role} of {name}" for name, role in sorted(self.roles.items())]
        shown = own if len(own) <= 3 else [*own[:3], f"{len(own) - 3} more"]
        return ", ".join([self.role.value, *shown] if self.role else shown)

    def role_on(self, application: str) -> Role | None:
        """Return the role on an application; None: the person may not see it."""
        own = self.roles.get(application)
        if self.role is None or own is None:
            return self.role or own
        return self.role if self.role.includes(own) else own

    def may_act_on(self, application: str) -> bool:
        """Return whether the person may act on an application."""
        return self._has(Role.OPERATOR, application)

    def administers(self, application: str) -> bool:
        """Return whether the person may manage an application: its roles and its agents."""
        return self._has(Role.ADMIN, application)

    def _has(self, least: Role, application: str) -> bool:
        role = self.role_on(application)
        return role is not None and role.includes(least)

    def _every_role(self) -> list[Role]:
        return [each for each in (self.role, *self.roles.values()) if each is not None]


#: The person who acts; None: a process of the server, which may do everything.
_CURRENT: ContextVar[Person | None] = ContextVar("person", default=None)


def current() -> Person | None:
    """Return the person of the request; None outside of requests."""
    return _CURRENT.get()


def enter(person: Person | None) -> None:
    """Set the person of the request, and confine its connection if necessary."""
    _CURRENT.set(person)
    _apply()


def leave(**_: Any) -> None:
    """End the request: receives Django's request_started and request_finished."""
    _CURRENT.set(None)
    try:
        _apply()
    except DatabaseError:
        connection.close()


def require(application: str | None, least: Role = Role.OPERATOR) -> None:
    """Raise NotPermitted if the role on an application, or with None on all, does not suffice.

    Raises NotFound if the person may not see it, as for an unknown application.
    """
    person = _CURRENT.get()
    if person is None:
        return
    role = person.role if application is None else person.role_on(application)
    if role is None:
        if application is None:
            raise NotPermitted(application, least.value)
        raise NotFound(f"there is no application {application!r}")
    if not role.includes(least):
        raise NotPermitted(application, least.value)


@contextmanager
def acting_on(*applications: str | None, least: Role = Role.OPERATOR) -> Iterator[None]:
    """Check the role on each application as `require` does, and lift the confinement for the block.

    Acts write tables. Use it around a transaction, not inside: what follows a commit is part of
    the act.
    """
    for application in applications:
        require(application, least)
    with lifted():
        yield


@contextmanager
def lifted() -> Iterator[None]:
    """Lift the confinement for the block: for what the server itself has to read, such as the chain
    of the audit. It also lifts the checks of `require`."""
    person = _CURRENT.get()
    if person is None or not person.confined:
        yield
        return
    enter(None)
    try:
        yield
    finally:
        _CURRENT.set(person)
        # In a broken transaction the confinement returns with the rollback.
        if not connection.needs_rollback:
            _apply()


def acts(
    function: Callable[Concatenate[str, Args], Result],
) -> Callable[Concatenate[str, Args], Result]:
    """Require the role operator on the application, the first argument; see `acting_on`."""

    @wraps(function)
    def acting(application: str, /, *args: Args.args, **kwargs: Args.kwargs) -> Result:
        with acting_on(application):
            return function(application, *args, **kwargs)

    return acting


def on_connect(connection: Any, **_: Any) -> None:
    """Confine a connection that a request opens; receives Django's connection_created."""
    setattr(connection, _STATE, None)
    if connection.alias == "default":
        _apply(connection)


def is_confined(wrapper: Any) -> bool:
    """Return whether Django's connection is confined."""
    return getattr(wrapper, _STATE, None) is not None


def _apply(wrapper: Any = connection) -> None:
    """Bring a connection, if it is open, into the state of the person."""
    person = _CURRENT.get()
    wanted = None if person is None or not person.confined else sorted(person.roles)
    if wrapper.connection is None or getattr(wrapper, _STATE, None) == wanted:
        return
    with wrapper.cursor() as cursor:
        if wanted is None:
            cursor.execute("RESET search_path")
        else:
            cursor.execute(
                "SELECT set_config('search_path', %s, false), set_config(%s, %s::text[]::text,"
                " false)",
                [SCHEMA, SETTING, wanted],
            )
    setattr(wrapper, _STATE, wanted)
