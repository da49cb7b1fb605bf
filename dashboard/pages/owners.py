"""Owner rules: who takes care of which errors; their form, and their changes."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from arrester.controlplane import access, actions, queries
from arrester.controlplane.models import OwnerRule
from arrester.dashboard.components import forms
from arrester.dashboard.page_frame import page
from arrester.dashboard.permissions import NOT_AN_OPERATOR, Person, for_operators, for_people
from arrester.domain.errors import InvalidValue, NotFound

FIELDS = ("owner", "application", "pipeline", "stage")


@for_people
def owners(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the owner rules in their order."""
    return show(request, who)


def show(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the owner rules after an act."""
    context = {
        "rules": queries.owners().rules,
        "disabled": "" if who.may_act_on_all else f"{NOT_AN_OPERATOR} on all applications",
    }
    url = "" if request.method == "GET" else reverse("owners")
    return page(request, who, "errors", context, template="owners", title="Owner rules", url=url)


@require_GET
@for_operators
def dialog(request: HttpRequest, who: Person) -> HttpResponse:
    """Show the form of an owner rule, with `rule` of an existing one."""
    access.require(None)
    return _dialog(request, _rule(request.GET.get("rule", "")))


def _dialog(request: HttpRequest, rule: OwnerRule | None, *, invalid: str = "") -> HttpResponse:
    rules = queries.owners().rules
    present = {name: "" if rule is None else getattr(rule, name) for name in FIELDS}
    present["place"] = str(len(rules) + 1 if rule is None else rule.place)
    context = {
        "rule": rule,
        "values": {name: request.POST.get(name, value) for name, value in present.items()},
        "owners": queries.known_owners(),
        "names": sorted(queries.log_positions()),
        "stages": queries.stages(),
        "last": len(rules) + (rule is None),
        "invalid": invalid,
    }
    return forms.dialog(request, "owner_rule", context)


@require_POST
@for_operators
def save(request: HttpRequest, who: Person) -> HttpResponse:
    """Add or change an owner rule."""
    rule = _rule(request.POST.get("rule", ""))
    try:
        given = {name: request.POST.get(name, "").strip() for name in FIELDS}
        place = forms.whole_number("place", request.POST)
        form = actions.OwnerRuleForm(**given, place=place)
        actions.save_owner_rule(None if rule is None else rule.id, form, actor=who.name)
    except InvalidValue as error:
        return _dialog(request, rule, invalid=f"{error}.")
    return forms.page_after(request, partial(show, request, who), redirect_to=reverse("owners"))


@require_POST
@for_operators
def delete(request: HttpRequest, who: Person, id: int) -> HttpResponse:
    """Delete an owner rule."""
    actions.delete_owner_rule(id, actor=who.name)
    return forms.page_after(request, partial(show, request, who), redirect_to=reverse("owners"))


def _rule(text: str) -> OwnerRule | None:
    """Return the rule with an id, None without one; raises NotFound."""
    if not text:
        return None
    for each in queries.owners().rules:
        if str(each.id) == text:
            return each
    raise NotFound(f"there is no owner rule {text[:20]}")
