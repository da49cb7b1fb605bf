"""The stages of the Dockerfile: the folders and the packages that an image has."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.services import REPOSITORY


def stage(name: str) -> str:
    """Return the lines of a stage."""
    text = (REPOSITORY / "Dockerfile").read_text()
    stages = re.split(r"^FROM \S+ AS ", text, flags=re.MULTILINE)
    [found] = [each for each in stages if each.startswith(f"{name}\n")]
    return found


def folders(name: str) -> list[str]:
    """Return the folders of the repository that a stage copies into its working directory."""
    copied = re.findall(r"^COPY (\w+) (\w+)$", stage(name), re.MULTILINE)
    assert all(source == target for source, target in copied)
    return [source for source, _ in copied]


def files(name: str) -> list[str]:
    """Return the names of the requirement files that a stage installs."""
    return re.findall(r"-r requirements/(\w+)\.txt", stage(name))


def packages(name: str) -> set[str]:
    """Return the pinned packages of the requirement files that a stage installs."""
    pins = "".join(
        (REPOSITORY / "requirements" / f"{file}.txt").read_text() for file in files(name)
    )
    return {_normal(each) for each in re.findall(r"^([\w.-]+)(?:\[\w+\])?==", pins, re.MULTILINE)}


def _normal(package: str) -> str:
    return package.lower().replace("_", "-")


@cache
def _copy(name: str) -> tempfile.TemporaryDirectory[str]:
    place = tempfile.TemporaryDirectory(prefix=f"image-{name}-")
    atexit.register(place.cleanup)
    for folder in folders(name):
        shutil.copytree(REPOSITORY / folder, Path(place.name) / folder, symlinks=True)
    return place


def working_directory(name: str) -> Path:
    """Return a folder with what the working directory of an image has, until the tests end."""
    return Path(_copy(name).name)
