"""What exceptions of the JVM say of themselves: one call asks the same of many.

Each question from Python is a call, and an exception is asked a dozen. Method handles put one to
all of them in the JVM, and need no jar of ours; the answers come back pickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

#: So many causes of an exception are looked at, one below the other.
_CAUSES = 10


class Said(NamedTuple):
    """What one exception says of itself."""

    #: Of its class, and of those that it extends.
    names: tuple[str, ...]
    message: str
    #: Spark's own have error conditions.
    condition: str | None


class Thrown(NamedTuple):
    """What an exception says and what its causes say, and its stack trace as Java shows it."""

    chain: Sequence[Said]
    stack: str


class Asking:
    """Puts questions to Java objects; made once for a JVM, of handles that are bound then."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self.handles = jvm.java.lang.invoke.MethodHandles
        self.lookup = self.handles.publicLookup()
        self._type = jvm.java.lang.invoke.MethodType.methodType
        #: By the name of a class.
        self._names: dict[str, tuple[str, ...]] = {}
        self._anything = self.named("java.lang.Object")
        throwable, text = self.named("java.lang.Throwable"), self.named("java.lang.String")
        spark_throwable = self.named("org.apache.spark.SparkThrowable")
        a_class = self.named("java.lang.Class")
        name = self.handles.filterReturnValue(
            self.method(throwable, "getClass", a_class), self.method(a_class, "getName", text)
        )
        stack = self.lookup.findStatic(
            self.named("org.apache.spark.util.Utils"),
            "exceptionString",
            self._type(text, throwable),
        )
        self._cause = self._asked_of(throwable, self.method(throwable, "getCause", throwable))
        self._name = self._asked_of(throwable, name)
        self._message = self._asked_of(throwable, self.method(throwable, "getMessage", text))
        self._stack = self._asked_of(throwable, stack)
        condition = self.method(spark_throwable, "getCondition", text)
        self._condition = self._asked_of(spark_throwable, condition)

    def named(self, name: str) -> Any:
        """Return a class as Spark's threads see it."""
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return self._jvm.java.lang.Class.forName(name, True, loader)

    def method(self, owner: Any, name: str, result: Any) -> Any:
        """Return the handle of a method without parameters."""
        return self.lookup.findVirtual(owner, name, self._type(result))

    def function(self, handle: Any) -> Any:
        """Return a Java function that calls a handle of one parameter."""
        function = self.named("java.util.function.Function")
        made = handle.asType(self._type(self._anything, self._anything))
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(function, made)

    def caught(self, handle: Any, given: Any) -> Any:
        """Return a handle that takes a `given`, and returns what another one returns or raises."""
        throwable = self.named("java.lang.Throwable")
        same = self.handles.identity(self._anything)
        return self.handles.catchException(
            handle.asType(self._type(self._anything, given)),
            throwable,
            same.asType(self._type(self._anything, throwable)),
        )

    def thrown(self, objects: Any) -> list[Thrown | None]:
        """Return what each of a Java array says that is an exception; None for what is none."""
        stacks = self._answers(objects, self._stack)
        chains: list[list[Said]] = [[] for _ in stacks]
        for _ in range(_CAUSES):
            names = self._answers(objects, self._name)
            if not any(names):
                break
            messages = self._answers(objects, self._message)
            conditions = self._answers(objects, self._condition)
            for index, name in enumerate(names):
                if name is not None:
                    if name not in self._names:
                        self._names[name] = class_names(name, objects[index].getClass())
                    message = (messages[index] or "").strip()
                    chains[index].append(Said(self._names[name], message, conditions[index]))
            objects = self.each(objects, self._cause)
        return [
            Thrown(chain, stack or "") if chain else None
            for chain, stack in zip(chains, stacks, strict=True)
        ]

    def each(self, objects: Any, function: Any) -> Any:
        """Return a Java array of what a function returns for each of another one."""
        return self._jvm.java.util.Arrays.stream(objects).map(function).toArray()

    def _answers(self, objects: Any, function: Any) -> Sequence[str | None]:
        pickler = self._jvm.net.razorvine.pickle.Pickler()
        answers: Sequence[str | None] = pickle.loads(pickler.dumps(self.each(objects, function)))
        return answers

    def _asked_of(self, kind: Any, handle: Any) -> Any:
        """Return a function that asks those of a kind; others, and null, have no answer."""
        boolean = self._jvm.java.lang.Boolean.TYPE
        is_one = self.lookup.bind(kind, "isInstance", self._type(boolean, self._anything))
        one_to_one = self._type(self._anything, self._anything)
        nothing = self.handles.dropArguments(
            self.handles.constant(self._anything, None),
            0,
            self._jvm.java.util.List.of(self._anything),
        )
        return self.function(self.handles.guardWithTest(is_one, handle.asType(one_to_one), nothing))


def asking(spark: SparkSession) -> Asking:
    """Return who puts questions in a session's JVM."""
    # Each micro-batch has a session of its own.
    return _asking(spark._jvm)


@lru_cache(maxsize=1)
def _asking(jvm: Any) -> Asking:
    return Asking(jvm)


def class_names(name: str, cls: Any) -> tuple[str, ...]:
    """Return the names of an exception's class and of those that it extends."""
    names = [name]
    while (cls := cls.getSuperclass()) is not None and cls.getName() != "java.lang.Throwable":
        names.append(str(cls.getName()))
    return tuple(names)
