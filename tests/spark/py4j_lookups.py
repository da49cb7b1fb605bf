"""Lookups of Java classes by py4j, each made once.

PySpark looks its classes up by name in each call. Each lookup is a round trip, and a name that is a
package is searched for in all archives of Spark.
"""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import (  # type: ignore[import-untyped]  # py4j has no types
    JavaClass,
    JavaMember,
    JavaPackage,
    JVMView,
)


def keep(patch: pytest.MonkeyPatch) -> None:
    """Let py4j keep what it has found, for each gateway."""
    for kind in (JVMView, JavaPackage, JavaClass):
        patch.setattr(kind, "__getattr__", _kept(kind.__getattr__))


def _kept(look_up: Any) -> Any:
    def attribute(self: Any, name: str) -> Any:
        kept = self._gateway_client.__dict__.setdefault("kept_lookups", {})
        # The only state of a view is its id; of a package or a class, its full name.
        own = vars(self)
        key = (type(self), own.get("_id") or own["_fqn"], name)
        if key in kept:
            return kept[key]
        found = look_up(self, name)
        # A class may be added later where a package was found, and a field may change.
        if isinstance(found, JavaClass | JavaMember) or (
            isinstance(found, JavaPackage) and name.islower()
        ):
            kept[key] = found
        return found

    return attribute
