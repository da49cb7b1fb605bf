"""Classes of the JVM: access to them, and whether this JVM has them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]  # py4j has no types


def jvm_class(jvm: Any, name: str) -> Any:
    """Return the class of this name (`a.b.Outer$Inner`), without a call to the JVM.

    `jvm.a.b.Outer` takes a call for each part of the name, and each part that is no class makes the
    JVM search its jars. Using a class that does not exist raises a Py4JError.
    """
    return JavaClass(name, jvm._gateway_client)


@lru_cache(maxsize=64)
def has_jvm_class(jvm: Any, name: str) -> bool:
    """Whether the JVM has a class of this name."""
    return class_object(jvm, name) is not None


@lru_cache(maxsize=64)
def has_jvm_method(jvm: Any, name: str, method: str) -> bool:
    """Whether the JVM's class `name` has such a public method."""
    return method in method_names(class_object(jvm, name))


def class_object(jvm: Any, name: str) -> Any | None:
    """Return Java's object of the class of this name, None if there is no such class."""
    loader = jvm_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    try:
        return jvm_class(jvm, "java.lang.Class").forName(name, False, loader)
    except Exception:  # an error of py4j
        return None


def method_names(loaded: Any) -> frozenset[str]:
    """Return the names of the public methods of a class."""
    return frozenset(str(method.getName()) for method in loaded.getMethods())
