"""The short form of `make chaos`: the whole product under one fault of each important kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.services import REPOSITORY

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.chaos,
    pytest.mark.long,
    # Its own waits are shorter, and they report what is missing.
    pytest.mark.timeout(4 * PATIENCE_SECONDS),
]
#: The product of this test has servers and settings of its own, not those of the suite.
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "PYSPARK_PYTHON", "PYTHONUNBUFFERED")


def test_no_record_is_lost_or_doubled(tmp_path: Path) -> None:
    log = tmp_path / "chaos.log"
    command = [sys.executable, "-m", "tests.chaos", "--short", "--seed", "7"]
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    with log.open("wb") as output:
        chaos = subprocess.Popen(
            command, cwd=REPOSITORY, env=env, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            code = chaos.wait()
        finally:
            # It stops the product.
            chaos.terminate()
            chaos.wait()

    assert code == 0, log.read_text()[-4000:]
