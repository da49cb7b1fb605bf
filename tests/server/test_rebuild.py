"""`manage.py rebuild`: the views can be thrown away, and a wrong row is found."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from controlplane import actions, ingest, models, projections
from tests import histories
from tests.histories import APPLICATION, JFK
from tests.server import streams

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def before(redis: Redis) -> projections.Derived:
    """Return the rows of an application with a bit of everything."""
    streams.send(redis, [*histories.started(), *histories.paused(), histories.failed(8)])
    ingest.drain(APPLICATION)
    actions.skip_record(JFK.digest, actor="ana", reason="bad")
    actions.shut_down_application(APPLICATION, actor="ben", reason="night")
    rows = projections.live(APPLICATION)
    assert all(rows.values())
    return rows


def run(*words: str) -> str:
    out = StringIO()
    call_command("rebuild", *words, stdout=out)
    return out.getvalue()


def test_rebuild_equals_live(before: projections.Derived) -> None:
    for model in projections.VIEWS:
        model._default_manager.all().delete()
    assert run() == "flights @ 10: derived again\n"
    assert projections.live(APPLICATION) == before
    assert run("--verify") == "flights: 0 rows differ\n"


def test_verify_finds_what_differs_and_changes_nothing(before: projections.Derived) -> None:
    models.Task.objects.update(failed=999)
    models.Thread.objects.all().delete()
    with pytest.raises(CommandError, match="2 rows differ"):
        run(APPLICATION, "--verify")
    assert models.Task.objects.get().failed == 999
    run(APPLICATION)
    assert projections.live(APPLICATION) == before


def test_an_unknown_application_is_named() -> None:
    with pytest.raises(CommandError, match="there is no application other"):
        run("other")
