"""The version of an application, which error groups are compared by."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from arrester.agents.config import AgentConfig
from arrester.agents.release import installed_release
from arrester.domain.errors import InvalidConfiguration


def install(folder: Path, *, requires: str) -> None:
    """Write the metadata of an installed distribution with a package and a console script."""
    metadata = folder / "jobs-1.4.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: jobs\nVersion: 1.4.2\nRequires-Dist: {requires}\n"
    )
    (metadata / "RECORD").write_text("nightly/__init__.py,,\nnightly/run.py,,\n")
    (metadata / "entry_points.txt").write_text("[console_scripts]\nnightly = nightly.run:main\n")


def module(name: str | None, file: str) -> ModuleType:
    made = ModuleType("__main__")
    made.__spec__ = None if name is None else ModuleSpec(name, None)
    made.__file__ = file
    return made


def test_the_version_of_the_installed_script_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, requires="arrester[agents] (>=0.3)")
    monkeypatch.syspath_prepend(tmp_path)
    script = str(Path(sys.executable).parent / "nightly")

    assert installed_release(module("nightly.run", "run.py")) == "1.4.2"
    assert installed_release(module(None, script)) == "1.4.2"
    # A file for spark-submit, a notebook, and a launcher.
    assert installed_release(module(None, "/jobs/nightly")) is None
    assert installed_release(ModuleType("__main__")) is None
    assert installed_release(module("pytest.__main__", "__main__.py")) is None


def test_a_distribution_that_does_not_require_this_product_is_a_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, requires="arrester-tools; extra == 'arrester'")
    monkeypatch.syspath_prepend(tmp_path)

    assert installed_release(module("nightly.run", "run.py")) is None


def read(version: str | None, **environment: str) -> AgentConfig:
    return AgentConfig.read("flights", {}, version=version, environment=environment)


def test_the_argument_precedes_the_environment() -> None:
    assert read("1.4.2", ARRESTER_VERSION="2").release == "1.4.2"
    assert read(None, ARRESTER_VERSION=" 2 ").release == "2"
    assert read(None).release is None


@pytest.mark.parametrize("version", ["", " ", "x" * 101, "1\n2", 3])
def test_an_invalid_version_is_refused(version: str) -> None:
    with pytest.raises(InvalidConfiguration, match="1 to 100 printable characters"):
        read(version)


def test_an_invalid_version_of_the_environment_names_its_variable() -> None:
    with pytest.raises(InvalidConfiguration, match="ARRESTER_VERSION"):
        read(None, ARRESTER_VERSION="1\t2")
