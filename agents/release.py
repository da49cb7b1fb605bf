"""The version of the installed distribution that the script belongs to."""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType
from typing import Final

from arrester.domain.errors import InvalidValue

MAX_CHARACTERS: Final = 100
RULE: Final = f"a text of 1 to {MAX_CHARACTERS} printable characters"
#: The name of this product as a distribution.
_REQUIRED: Final = "arrester"


def check_release(name: str, value: object) -> str:
    """Return the version of an application; raises InvalidValue."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue(name, value, RULE)
    release = value.strip()
    if len(release) > MAX_CHARACTERS or not release.isprintable():
        raise InvalidValue(name, value, RULE)
    return release


def installed_release(main: ModuleType | None = None) -> str | None:
    """Return the version of the distribution that contains the main module; None: there is none.

    It is a console script or a module (`python -m`) of a distribution that requires this product:
    launchers such as pytest and Jupyter are distributions, too.
    """
    main = main or sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    package = None if spec is None else spec.name.partition(".")[0]
    script = None if package is not None or file is None else _installed_script(Path(file))
    if package is None and script is None:
        return None
    try:
        found = [each for each in distributions() if _contains(each, package, script)]
        return next((check_release("version", each.version) for each in found), None)
    except Exception:  # metadata of another distribution may be damaged
        return None


def _installed_script(file: Path) -> str | None:
    """Return the name of a console script; None for another file."""
    return file.name if file.parent == Path(sys.executable).parent else None


def _contains(distribution: Distribution, package: str | None, script: str | None) -> bool:
    """Whether a distribution requires this product, and contains the package or script."""
    required = (_name_of(each) for each in distribution.requires or ())
    if _REQUIRED not in required:
        return False
    if script is not None:
        return any(
            each.group == "console_scripts" and each.name == script
            for each in distribution.entry_points
        )
    top_level = (distribution.read_text("top_level.txt") or "").split()
    return package in top_level or any(
        each.parts[0] in (package, f"{package}.py") for each in distribution.files or ()
    )


def _name_of(requirement: str) -> str:
    """Return the name at the beginning of a requirement, `arrester[agents]>=0.4; extra == "x"`."""
    end = next((at for at, each in enumerate(requirement) if not _is_of_name(each)), None)
    return requirement[:end].lower()


def _is_of_name(character: str) -> bool:
    return character.isalnum() or character in "-_."
