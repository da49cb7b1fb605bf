"""The channels of owners: those with the name of a person or a team.

An account adds its own by a mail address; admins add those of teams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from arrester.controlplane import access, queries
from arrester.controlplane.access.roles import Role
from arrester.controlplane.alerts import addresses, configuration, sending
from arrester.controlplane.alerts.audit import AlertAct, record
from arrester.controlplane.models import Alert, AlertChannel, AlertRule, ApplicationRole
from arrester.domain.errors import InvalidValue

#: The rule that the first own channel adds.
RULE = "Alerts to owners"


def own_channel(account: str) -> AlertChannel | None:
    """Return the own channel of an account; None: it has none."""
    with access.lifted():
        return AlertChannel.objects.filter(user__username=account).first()


def subscribe(account: str, address: str) -> None:
    """Send alerts about what an account owns to its mail address; an empty one ends it.

    The first own channel adds the rule that sends to owners, if there is none. Raises InvalidValue
    for another address, or if a channel of admins has the name of the account.
    """
    address = address.strip()
    parsed = addresses.parse(address) if address else None
    if parsed is not None and parsed.service != addresses.MAIL:
        raise InvalidValue("address", parsed.shown, "a mail address")
    with access.lifted(), transaction.atomic():
        present = AlertChannel.objects.select_for_update().filter(user__username=account).first()
        if parsed is None:
            if present is not None:
                configuration.delete_channel(present.id, actor=account)
            return
        channel = present or AlertChannel(
            name=account,
            service=parsed.service,
            created_at=datetime.now(UTC),
            user=User.objects.get(username=account),
        )
        channel.shown_address = parsed.shown
        channel.secret = sending.encrypt_address(parsed)
        try:
            with transaction.atomic():
                channel.save()
        except IntegrityError:
            allowed = "the name of an account that no channel of admins has"
            raise InvalidValue("channel", account, allowed) from None
        record(account, account, AlertAct.CHANNEL_ADDED, f"own: {parsed.shown}")
        if not AlertRule.objects.filter(channel=None).exists():
            form = configuration.RuleForm(name=RULE, channel=None)
            configuration.save_rule(None, form, actor=account)


def channels_of_owners(alerts: Sequence[Alert]) -> dict[int, AlertChannel]:
    """Return the channels of the owners of alerts, by the id of the alert.

    An alert without an owner, or whose owner has no channel, is left out. So is the own channel of
    an account that is not active, or may not see the application.
    """
    owners, names = queries.owners(), dict[int, str]()
    about = [each for each in alerts if each.application]
    keys = {(each.application, each.fingerprint) for each in about if each.fingerprint}
    groups = queries.groups_by_key(keys)
    for alert in about:
        group = groups.get((alert.application, alert.fingerprint or ""))
        owner = owners.of(alert.application, alert.pipeline, group)
        if owner is not None:
            names[alert.id] = owner
    channels = _channels(names.values())
    owned = [
        (alert, channels[name])
        for alert in about
        if (name := names.get(alert.id)) is not None and name in channels
    ]
    pairs = {(channel.id, alert.application): channel for alert, channel in owned}
    allowed = {key for key, channel in pairs.items() if may_receive(channel, key[1])}
    return {
        alert.id: channel for alert, channel in owned if (channel.id, alert.application) in allowed
    }


def _channels(names: Iterable[str]) -> dict[str, AlertChannel]:
    found = AlertChannel.objects.filter(name__in=set(names), subscription=None)
    found = found.select_related("user")
    return {each.name: each for each in found}


def may_receive(channel: AlertChannel, application: str) -> bool:
    """Return whether a channel may be sent alerts of an application: its account sees it now."""
    user = channel.user
    if user is None:
        return True
    if not user.is_active:
        return False
    if user.is_superuser or user.groups.filter(name__in=[each.value for each in Role]).exists():
        return True
    return ApplicationRole.objects.filter(user=user, application=application).exists()


def receiving(channels: Sequence[AlertChannel], rules: Sequence[AlertRule]) -> set[int]:
    """Return the ids of those channels that enabled rules send to."""
    enabled = [each for each in rules if each.enabled]
    ids = {each.channel_id for each in enabled} | {each.escalate_to_id for each in enabled}
    used = {each.id for each in channels if each.id in ids}
    if any(each.channel_id is None for each in enabled):
        owners = {*queries.known_owners()}
        used |= {each.id for each in channels if each.user_id is not None or each.name in owners}
    return used
