from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def short_last_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an instance that ends wait briefly for confirmations: most tests have no server."""
    monkeypatch.setattr("arrester.agents.transport.sender.LAST_CONFIRM_SECONDS", 0.05)


@pytest.fixture
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a heartbeat every 0.1 s; request it before the runtime."""
    monkeypatch.setattr("arrester.agents.transport.sender.HEARTBEAT_SECONDS", 0.1)
