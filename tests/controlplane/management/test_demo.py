"""`arrester demo` reports a running pipeline only if there is one."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from arrester.controlplane import actions
from arrester.controlplane.ingest import drain
from arrester.controlplane.local import demo
from tests import histories
from tests.controlplane import streams

pytestmark = pytest.mark.usefixtures("fresh_database")


def test_the_demo_is_reported_as_running_when_an_instance_is(redis: Redis) -> None:
    actions.open_application(demo.APPLICATION, actor="ana")
    actions.shut_down_application(demo.APPLICATION, actor="ana", reason="the day is over")
    out = StringIO()
    with pytest.raises(CommandError, match="no instance of 'flights' is RUNNING after 0 s"):
        call_command("demo", "--wait-seconds", "0", stdout=out)
    assert out.getvalue() == "Application 'flights' is OPEN.\n"
    streams.send(redis, histories.started(), application=demo.APPLICATION)
    drain.drain(demo.APPLICATION)
    call_command("demo", stdout=out)
    assert "Its pipeline is RUNNING on driver, pid 7." in out.getvalue()
