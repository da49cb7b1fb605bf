"""Each deliberate fault still applies to the code as it is now; `make mutants` runs them."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import Mutant, mutants
from tests.services import REPOSITORY

FEWEST = 30


def test_there_are_enough_faults_and_their_names_differ() -> None:
    names = [each.name for each in mutants()]
    assert len(set(names)) == len(names) >= FEWEST


@pytest.mark.parametrize("mutant", mutants(), ids=lambda each: each.name)
def test_a_fault_changes_code_and_names_tests_that_exist(mutant: Mutant) -> None:
    text = (REPOSITORY / mutant.file).read_text()
    compile(mutant.applied_to(text), mutant.file, "exec")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}" in (REPOSITORY / file).read_text()
