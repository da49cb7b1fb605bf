"""Apply each fault of `mutants.toml` to a copy of the repository and run the tests that detect it.

    python -m tests.mutants [NAME…]

Exits with 1 if a fault survives, which means that the named tests pass in spite of it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.catalogue import Mutant, mutants
from tests.services import REPOSITORY

#: Exit status of pytest when tests ran and some failed.
TESTS_FAILED = 1


def copy_repository(target: Path) -> None:
    """Copy every tracked file, links included."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, stdout=subprocess.PIPE)
    subprocess.run(
        ["tar", "--create", "--null", "--files-from=-", "--file", target / "copy.tar"],
        cwd=REPOSITORY,
        input=listed.stdout,
        check=True,
    )
    subprocess.run(["tar", "--extract", "--file", "copy.tar"], cwd=target, check=True)
    # Java archives of databases and brokers.
    (target / "build").symlink_to(REPOSITORY / "build")


def is_detected(mutant: Mutant, copy: Path) -> bool:
    """Return whether the mutant's tests fail with the fault in place."""
    module = copy / mutant.file
    text = module.read_text()
    module.write_text(mutant.applied_to(text))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests],
            cwd=copy,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        module.write_text(text)
    if done.returncode not in (0, TESTS_FAILED):
        raise SystemExit(f"{mutant.name}: pytest ended with {done.returncode}\n{done.stdout}")
    return done.returncode == TESTS_FAILED


def main(names: list[str]) -> int:
    chosen = [each for each in mutants() if not names or each.name in names]
    survived = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_repository(copy)
        for each in chosen:
            detected = is_detected(each, copy)
            print(f"{'detected' if detected else 'SURVIVED'}  {each.name}", flush=True)
            survived += [] if detected else [each.name]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} faults detected")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
