"""Access to classes of the JVM."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]  # py4j has no types


def jvm_class(jvm: Any, name: str) -> Any:
    """Return the class of this name (`a.b.Outer$Inner`), without a call to the JVM.

    `jvm.a.b.Outer` takes a call for each part of the name, and each part that is no class makes the
    JVM search its jars. Using a class that does not exist raises a Py4JError.
    """
    return JavaClass(name, jvm._gateway_client)
