"""What the platform repairs by itself ends no run: its query begins again, bounded."""

from __future__ import annotations

from datetime import timedelta

from agents.fates import SelfHealing
from agents.problem import Problem
from agents.sourcing import SourceRetries
from controlplane.domain.error_settings import ErrorSettings
from controlplane.domain.policy import StageKind
from tests.agents.facts import NOW

KILLED = Problem(exception_class="org.apache.spark.TaskKilledException", message="x")


def test_what_heals_itself_begins_again_as_a_thread_is_replaced() -> None:
    settings = ErrorSettings.read({"errors.self.healing.classes": "builtins.InterruptedError"})
    retries = SourceRetries(settings.policy(StageKind.SOURCE), "flights")
    healing = [SelfHealing(KILLED, "a killed task"), InterruptedError("of a transform")] * 5
    waits = []
    for exc in healing:
        waits.append(retries.wait_ms(exc, at=NOW))
        retries.went_well()
    assert waits == [1_000 * 2**n for n in range(6)] + [60_000] * 4
    # The eleventh within an hour is for the uncaught exception handler.
    assert retries.wait_ms(healing[0], at=NOW + timedelta(minutes=59)) is None
    assert retries.wait_ms(healing[0], at=NOW + timedelta(hours=1)) == 1_000
    assert retries.wait_ms(ValueError("no"), at=NOW) is None
