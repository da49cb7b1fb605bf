"""Log-in, log-out, and the page of the own password."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings as environment
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import PermissionDenied
from django.forms import ValidationError
from django.http import HttpRequest, HttpResponse

from arrester.controlplane import actions
from arrester.dashboard.http_errors import headers
from arrester.dashboard.page_frame import Notice, page
from arrester.dashboard.pages import settings
from arrester.dashboard.permissions import Person, for_people
from arrester.dashboard.session import client_address
from arrester.domain.errors import LockedOut


class LogInForm(AuthenticationForm):
    """Checks a password, unless there were too many wrong ones."""

    def clean(self) -> dict[str, Any]:
        """Return the values; raise LockedOut before the password is hashed."""
        assert self.request is not None
        address = client_address(self.request)
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if name and password:
            actions.check_not_locked(name, address)
        try:
            return super().clean()
        except ValidationError:
            actions.record_wrong_password(str(name), address)
            raise


class LogIn(LoginView):
    """The page of the log-in."""

    template_name = "dashboard/login.html"
    form_class = LogInForm

    extra_context = {"sign_on": lambda: environment.ENVIRONMENT.sign_on}  # noqa: RUF012

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Log in; after too many wrong passwords the page has the reason and the time."""
        try:
            return super().post(request, *args, **kwargs)
        except LockedOut as error:
            form = self.form_class(request, initial={"username": request.POST.get("username", "")})
            context = self.get_context_data(form=form, locked=error)
            return self.render_to_response(context, status=429, headers=headers(error))

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Log in, and record it."""
        response = super().form_valid(form)
        actions.record_login(form.get_user().get_username(), client_address(self.request))
        return response


class LogOut(LogoutView):
    """The end of a session."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Log out, and record it."""
        if request.user.is_authenticated:
            actions.record_logout(request.user.get_username(), client_address(request))
        return super().post(request, *args, **kwargs)


@for_people
def password(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the form of the own password, and change it; the other sessions of the user end."""
    user = cast(User, request.user)
    if not user.has_usable_password():
        raise PermissionDenied("this account has no password: it logs in by single sign-on")
    if request.method != "POST":
        return _password_page(request, who, PasswordChangeForm(user))
    address = client_address(request)
    form = PasswordChangeForm(user, request.POST)
    try:
        actions.check_not_locked(who.name, address)
    except LockedOut as error:
        return _password_page(request, who, PasswordChangeForm(user), locked=error)
    if not form.is_valid():
        if request.POST.get("old_password") and "old_password" in form.errors:
            actions.record_wrong_password(who.name, address, actor=who.name)
        return _password_page(request, who, form)
    actions.change_own_password(user, form.cleaned_data["new_password1"])
    update_session_auth_hash(request, user)
    notice = Notice(text="Password changed. Your other sessions have ended.")
    return settings.show(request, who, notice=notice)


def _password_page(
    request: HttpRequest, who: Person, form: PasswordChangeForm, *, locked: LockedOut | None = None
) -> HttpResponse:
    response = page(
        request,
        who,
        "settings",
        {"form": form, "locked": locked},
        template="password",
        title="Change password",
        live=False,
        status=429 if locked else 400 if form.errors else 200,
    )
    for name, value in headers(locked).items() if locked else ():
        response[name] = value
    return response
