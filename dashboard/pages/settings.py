"""Settings: accounts, applications, agents, REST tokens, retention, and a test error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from arrester.controlplane import actions, queries, signing
from arrester.controlplane.access.roles import Role, TokenScope
from arrester.controlplane.actions.access import tokens
from arrester.controlplane.alerts import addresses, owner_channels
from arrester.dashboard.page_frame import Notice, page
from arrester.dashboard.permissions import (
    Person,
    check_token,
    for_admins,
    for_application_admins,
    for_operators,
    for_people,
    note_log_positions,
    tokens_of,
    visible_applications,
)
from arrester.domain.errors import InvalidValue

Choice = TypeVar("Choice", Role, TokenScope)
#: The periods that the form of a new token offers; the first one is the default.
TOKEN_DAYS = (tokens.DAYS, 30, 7, tokens.DAYS_MAX)
NEVER = "never"


@for_people
def settings(request: HttpRequest, who: Person) -> HttpResponse:
    """Show settings; accounts only to admins."""
    return show(request, who)


def show(
    request: HttpRequest,
    who: Person,
    *,
    notice: Notice | None = None,
    password: str = "",
    token: actions.NewToken | None = None,
    agent: actions.NewAgentCredential | None = None,
) -> HttpResponse:
    """Return the page, with a new password, token or credential if there is one."""
    summaries = queries.applications()
    context = {
        "accounts": queries.accounts() if who.is_admin else (),
        "locks": queries.locks(timezone.now()) if who.is_admin else (),
        "roles": [role.value for role in Role],
        "application_roles": [
            each for each in queries.application_roles() if who.administers(each.application)
        ]
        if who.is_any_admin
        else [],
        "summaries": summaries,
        "known": {each.state.name for each in summaries},
        "server_key": signing.public_key(),
        "credentials": [
            each for each in queries.agent_credentials() if who.administers(each.application)
        ]
        if who.is_any_admin
        else [],
        "agent": agent,
        "storage": None if who.confined else queries.storage(),
        "password": password,
        "token": token,
        "tokens": [(each, visible_applications(who, each)) for each in tokens_of(who)],
        "scopes": [scope.value for scope in TokenScope],
        "days": TOKEN_DAYS,
        "never": NEVER if who.is_admin else "",
        "account": request.POST.get("name", "") if password else "",
        "own_channel": owner_channels.own_channel(who.name),
        "sends_mail": addresses.sends_mail(),
    }
    # A refresh would remove the password, token or credential from the page.
    live = not (password or token or agent)
    url = reverse("settings")
    response = page(request, who, "settings", context, url=url, live=live, notice=notice)
    if "HX-Request" in request.headers and request.method == "POST":
        response["HX-Trigger"] = "arrester:done"
    return response


@require_POST
@for_admins
def create(request: HttpRequest, who: Person) -> HttpResponse:
    """Create an account; its password is shown once."""
    name, role = request.POST.get("name", "").strip(), _role(request)
    return _done(request, who, lambda: actions.create_account(name, role, actor=who.name))


@require_POST
@for_people
def create_token(request: HttpRequest, who: Person) -> HttpResponse:
    """Create a REST token of the user; it is shown once."""
    given = request.POST
    try:
        created = actions.create_token(
            who.name,
            given.get("name", "").strip(),
            actor=who.name,
            scope=_choice("scope", given.get("scope", ""), TokenScope),
            days=_days(given.get("days", "")),
            may_be_endless=who.is_admin,
            applications=given.get("applications", "").replace(",", " ").split() or None,
        )
    except InvalidValue as wrong:
        return show(request, who, notice=Notice(text=f"{wrong}.", bad=True))
    return show(request, who, token=created)


@require_POST
@for_people
def own_alerts(request: HttpRequest, who: Person) -> HttpResponse:
    """Send alerts about what the user owns to a mail address, or end it."""
    address = "" if "end" in request.POST else request.POST.get("address", "")
    return _done(request, who, lambda: owner_channels.subscribe(who.name, address))


@require_POST
@for_people
def revoke_token(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Revoke a token: an own one, for admins any."""
    check_token(who, id)
    return _done(request, who, lambda: actions.revoke_token(id, actor=who.name))


@require_POST
@for_admins
def change(request: HttpRequest, who: Person, verb: str) -> HttpResponse:
    """Change an account: its role, its password, whether it is active."""
    name = request.POST.get("name", "")
    match verb:
        case "role":
            role = _role(request)
            return _done(request, who, lambda: actions.change_role(name, role, actor=who.name))
        case "password":
            return _done(request, who, lambda: actions.reset_password(name, actor=who.name))
        case "deactivate":
            return _done(request, who, lambda: actions.deactivate_account(name, actor=who.name))
        case "activate":
            return _done(request, who, lambda: actions.activate_account(name, actor=who.name))
        case _:
            raise Http404(verb)


@require_POST
@for_application_admins
def grant_role(request: HttpRequest, who: Person) -> HttpResponse:
    """Give an account a role on an application."""
    name, application, role = _account(request), _application(request), _role(request)

    def grant() -> None:
        if role is None:
            raise InvalidValue("role", "", ", ".join(Role))
        actions.grant_role(name, application, role, actor=who.name)

    return _done(request, who, grant)


@require_POST
@for_application_admins
def withdraw_role(request: HttpRequest, who: Person) -> HttpResponse:
    """Withdraw the role of an account on an application."""
    name, application = _account(request), _application(request)
    return _done(request, who, lambda: actions.withdraw_role(name, application, actor=who.name))


@require_POST
@for_admins
def unlock(request: HttpRequest, who: Person) -> HttpResponse:
    """End the lock-out of a name or an address."""
    subject = request.POST.get("subject", "")
    return _done(request, who, lambda: actions.unlock(subject, actor=who.name))


@require_POST
@for_application_admins
def add_agent(request: HttpRequest, who: Person) -> HttpResponse:
    """Add a credential of an application's agents; it is shown once."""
    application = request.POST.get("application", "").strip()
    agent, notice = None, None
    try:
        agent = actions.add_agent_credential(application, actor=who.name)
    except InvalidValue as wrong:
        notice = Notice(text=f"{wrong}.", bad=True)
    note_log_positions(request)
    return show(request, who, notice=notice, agent=agent)


@require_POST
@for_application_admins
def remove_agent(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Remove a credential of an application's agents."""
    delete_keys = request.POST.get("delete_keys") == "1"
    try:
        problem = actions.remove_agent_credential(id, actor=who.name, delete_keys=delete_keys)
    except InvalidValue as wrong:
        problem = str(wrong)
    notice = Notice(text=f"{problem}.", bad=True) if problem else None
    note_log_positions(request)
    return show(request, who, notice=notice)


@require_POST
@for_operators
def send_test_error(request: HttpRequest, who: Person) -> HttpResponse:
    """Send a test error, and redirect to the page where it will appear."""
    actions.send_test_error(actor=who.name)
    return redirect(f"{reverse('errors')}?application=test&sent=1")


def _account(request: HttpRequest) -> str:
    return request.POST.get("name", "").strip()


def _application(request: HttpRequest) -> str:
    return request.POST.get("application", "").strip()


def _role(request: HttpRequest) -> Role | None:
    text = request.POST.get("role", "")
    return None if text == actions.NO_ROLE else _choice("role", text, Role)


def _choice(name: str, text: str, allowed: type[Choice]) -> Choice:
    if text not in list(allowed):
        raise InvalidValue(name, text[:50], ", ".join(allowed))
    return allowed(text)


def _days(text: str) -> int | None:
    """Return the days until a token expires; None: never."""
    if text == NEVER:
        return None
    if not text.isdecimal() or len(text) > 3:
        raise InvalidValue("days", text[:50], f"1 to {tokens.DAYS_MAX}, or {NEVER}")
    return int(text)


def _done(request: HttpRequest, who: Person, do: Callable[[], str | None]) -> HttpResponse:
    try:
        password = do() or ""
        notice = None
    except InvalidValue as wrong:
        password, notice = "", Notice(text=f"{wrong}.", bad=True)
    if "HX-Request" not in request.headers and not password and notice is None:
        return redirect("settings")
    note_log_positions(request)
    return show(request, who, notice=notice, password=password)
