"""A worker that finds alerts and sends them, and is killed at one step."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any

import django

django.setup()

from arrester.controlplane import alerts  # noqa: E402  # Django has to be ready first
from arrester.controlplane.alerts import outbox, routing, sending, subscriptions  # noqa: E402


def killed(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


step = sys.argv[1]
send = sending.send


def send_and_be_killed(*args: Any, **kwargs: Any) -> None:
    if step == "accepted":
        send(*args, **kwargs)
    killed()


package: Any = alerts
if step == "evaluated":
    package.route = killed
if step == "routed":
    real = routing.route

    def routed(**kwargs: Any) -> None:
        real(**kwargs)
        killed()

    package.route = routed
post_events = sending.post_events


def post_events_and_be_killed(*args: Any, **kwargs: Any) -> None:
    post_events(*args, **kwargs)
    killed()


sending.send = send_and_be_killed
sending.post_events = post_events_and_be_killed
alerts.update(now=datetime.now(UTC))
if step == "collected":
    sender: Any = outbox
    sender.send_pending = killed
for id in subscriptions.ids():
    subscriptions.deliver(id, seconds=5)
for channel in outbox.channels_to_send(now=datetime.now(UTC)):
    outbox.send_pending(channel)
