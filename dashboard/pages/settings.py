"""Settings: accounts, applications that may run, a REST token, retention, and a test error."""

from __future__ import annotations

from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from arrester.controlplane import actions, queries
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.roles import Role
from arrester.dashboard.page_frame import Notice, page
from arrester.dashboard.permissions import (
    Person,
    for_admins,
    for_operators,
    for_people,
    note_positions,
)


@for_people
def settings(request: HttpRequest, who: Person) -> HttpResponse:
    """Show settings; accounts only to admins."""
    return _show(request, who)


def _show(
    request: HttpRequest,
    who: Person,
    *,
    notice: Notice | None = None,
    password: str = "",
    token: str = "",
) -> HttpResponse:
    context = {
        "accounts": queries.accounts() if who.is_admin else (),
        "roles": [role.value for role in Role],
        "summaries": queries.applications(),
        "storage": queries.storage(),
        "password": password,
        "token": token,
        "account": request.POST.get("name", "") if password else "",
    }
    # A refresh would remove the password or token from the page.
    live = not (password or token)
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
    """Create the user's REST token, which replaces the one before; it is shown once."""
    return _show(request, who, token=actions.create_token(who.name, actor=who.name))


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
@for_operators
def send_test_error(request: HttpRequest, who: Person) -> HttpResponse:
    """Send a test error, and redirect to the page where it will appear."""
    actions.send_test_error(actor=who.name)
    return redirect(f"{reverse('errors')}?application=test&sent=1")


def _role(request: HttpRequest) -> Role:
    text = request.POST.get("role", "")
    if text not in list(Role):
        raise InvalidValue("role", text[:50], ", ".join(Role))
    return Role(text)


def _done(request: HttpRequest, who: Person, do: Callable[[], str | None]) -> HttpResponse:
    try:
        password = do() or ""
        notice = None
    except InvalidValue as wrong:
        password, notice = "", Notice(text=f"{wrong}.", bad=True)
    if "HX-Request" not in request.headers and not password and notice is None:
        return redirect("settings")
    note_positions(request)
    return _show(request, who, notice=notice, password=password)
