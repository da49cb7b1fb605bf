"""Roles on single applications: granted and withdrawn by the admins of the application."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.models import User
from django.db import transaction

from arrester.controlplane import access
from arrester.controlplane.access.roles import Role
from arrester.controlplane.actions.access.accounts import AccountAct, account, record
from arrester.controlplane.models import ApplicationRole
from arrester.domain.errors import NotFound
from arrester.domain.identity.names import check_name


def grant_role(name: str, application: str, role: Role, *, actor: str) -> None:
    """Give an account a role on an application, in the place of the one before.

    The application need not exist yet. Raises NotFound for an unknown account. Requires the role
    admin on the application.
    """
    check_name("application", application)
    with access.acting_on(application, least=Role.ADMIN), transaction.atomic():
        _set_role(account(name), application, role, actor=actor)


def withdraw_role(name: str, application: str, *, actor: str) -> None:
    """Withdraw the role of an account on an application; raise NotFound if it has none.

    Requires the role admin on the application.
    """
    with access.acting_on(application, least=Role.ADMIN), transaction.atomic():
        user = account(name)
        if not ApplicationRole.objects.filter(user=user, application=application).delete()[0]:
            raise NotFound(f"the account {name!r} has no role on the application {application!r}")
        record(actor, name, AccountAct.ROLE_CHANGED, f"none on {application}")


@transaction.atomic
def set_roles(user: User, roles: Mapping[str, Role | None], *, actor: str) -> None:
    """Give an account roles on some applications, or withdraw them, and record each change."""
    own = ApplicationRole.objects.filter(user=user)
    present = dict(own.values_list("application", "role"))
    for application, role in sorted(roles.items()):
        if role is not None and present.get(application) != role.value:
            _set_role(user, application, role, actor=actor)
        elif role is None and application in present:
            own.filter(application=application).delete()
            record(actor, user.get_username(), AccountAct.ROLE_CHANGED, f"none on {application}")


def _set_role(user: User, application: str, role: Role, *, actor: str) -> None:
    ApplicationRole.objects.update_or_create(
        user=user, application=application, defaults={"role": role.value}
    )
    detail = f"{role.value} on {application}"
    record(actor, user.get_username(), AccountAct.ROLE_CHANGED, detail)
