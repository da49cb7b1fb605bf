"""Changes of owner rules by operators of all applications, each recorded in the audit."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec
from django.db import transaction

from arrester.controlplane import access, audit_chain
from arrester.controlplane.models import OwnerRule
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.state.error_groups import check_owner

MAX_RULES = 200
#: The most `*` of a pattern: more could take very long to compare.
MAX_STARS = 4
_NAMES = re.compile(r"[a-z0-9.*-]{0,100}")
_STAGES = re.compile(r"\S{0,200}")


class OwnerAct(StrEnum):
    """The acts on owner rules, as the audit names them."""

    RULE_SAVED = "OWNER_RULE_SAVED"
    RULE_DELETED = "OWNER_RULE_DELETED"


class OwnerRuleForm(msgspec.Struct, frozen=True, kw_only=True):
    """The values of an owner rule."""

    owner: str
    application: str = ""
    pipeline: str = ""
    stage: str = ""
    #: Its place among the rules; None: the last.
    place: int | None = None


def save_owner_rule(id: int | None, form: OwnerRuleForm, *, actor: str) -> None:
    """Change an owner rule, or add one without `id`, at its place among the others.

    Raises InvalidValue for the first invalid value, NotFound.
    """
    row = OwnerRule(
        id=id,
        place=0,
        application=_pattern("application", form.application, _NAMES, "a-z 0-9 . - and *"),
        pipeline=_pattern("pipeline", form.pipeline, _NAMES, "a-z 0-9 . - and *"),
        stage=_pattern("stage", form.stage, _STAGES, "characters other than spaces"),
        owner=check_owner(form.owner, "owner"),
    )
    with access.acting_on(None), transaction.atomic():
        rules = _locked()
        before = None if id is None else str(_of(rules, id))
        others = [each for each in rules if each.id != id]
        if len(others) >= MAX_RULES:
            raise InvalidValue("rules", len(others) + 1, f"at most {MAX_RULES}")
        place = len(others) if form.place is None else form.place - 1
        others.insert(max(place, 0), row)
        row.save()
        _number(others)
        detail = str(row) if before is None else f"{row}; before: {before}"
        audit_chain.append(actor, row.owner, OwnerAct.RULE_SAVED.value, detail)


def delete_owner_rule(id: int, *, actor: str) -> None:
    """Delete an owner rule; raises NotFound."""
    with access.acting_on(None), transaction.atomic():
        rules = _locked()
        row = _of(rules, id)
        shown = str(row)
        row.delete()
        _number([each for each in rules if each is not row])
        audit_chain.append(actor, row.owner, OwnerAct.RULE_DELETED.value, shown)


def _locked() -> list[OwnerRule]:
    return [*OwnerRule.objects.select_for_update().order_by("place", "id")]


def _of(rules: list[OwnerRule], id: int) -> OwnerRule:
    found = next((each for each in rules if each.id == id), None)
    if found is None:
        raise NotFound(f"there is no owner rule {id}")
    return found


def _number(rules: list[OwnerRule]) -> None:
    """Give the rules their places without gaps."""
    for place, rule in enumerate(rules, start=1):
        rule.place = place
    OwnerRule.objects.bulk_update(rules, ["place"])


def _pattern(name: str, text: str, allowed: re.Pattern[str], words: str) -> str:
    """Return a pattern; one that matches anything is empty."""
    text = re.sub(r"\*+", "*", text.strip())
    if not allowed.fullmatch(text) or not text.isprintable() or text.count("*") > MAX_STARS:
        raise InvalidValue(name, text[:50], f"{words}, with at most {MAX_STARS} *")
    return "" if text == "*" else text
