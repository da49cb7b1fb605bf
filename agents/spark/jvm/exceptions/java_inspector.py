"""Read many Java exceptions with a few calls.

One by one, each exception takes a dozen calls from Python to the JVM. Method handles read all of
them in one call, without a jar of ours. Their results return pickled.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import has_jvm_method, jvm_class

#: The longest chain of causes that is read.
_CAUSES = 10


class ExceptionLink(NamedTuple):
    """One exception of a chain."""

    #: The names of its class and of the superclasses.
    names: tuple[str, ...]
    message: str
    #: Spark's error condition, or the SQLSTATE of a database.
    condition: str | None


class JavaException(NamedTuple):
    """An exception with its causes, and its stack trace in Java's form."""

    chain: Sequence[ExceptionLink]
    stack: str


class JavaInspector:
    """Read and map Java objects by method handles that are bound once per JVM."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self.handles = jvm_class(jvm, "java.lang.invoke.MethodHandles")
        self.lookup = self.handles.publicLookup()
        self._type = jvm_class(jvm, "java.lang.invoke.MethodType").methodType
        #: The names of exception classes and their superclasses, by class name.
        self._names: dict[str, tuple[str, ...]] = {}
        self._object = self.class_named("java.lang.Object")
        throwable = self.class_named("java.lang.Throwable")
        text = self.class_named("java.lang.String")
        spark_throwable = self.class_named("org.apache.spark.SparkThrowable")
        class_class = self.class_named("java.lang.Class")
        name = self.handles.filterReturnValue(
            self.method(throwable, "getClass", class_class),
            self.method(class_class, "getName", text),
        )
        stack = self.lookup.findStatic(
            self.class_named("org.apache.spark.util.Utils"),
            "exceptionString",
            self._type(text, throwable),
        )
        self._cause = self._if_instance(throwable, self.method(throwable, "getCause", throwable))
        self._name = self._if_instance(throwable, name)
        self._message = self._if_instance(throwable, self.method(throwable, "getMessage", text))
        self._stack = self._if_instance(throwable, stack)
        has_condition = has_jvm_method(jvm, "org.apache.spark.SparkThrowable", "getCondition")
        # Before 4.0, the method has another name.
        condition_method = "getCondition" if has_condition else "getErrorClass"
        condition = self.method(spark_throwable, condition_method, text)
        self._condition = self._if_instance(spark_throwable, condition)
        sql_exception = self.class_named("java.sql.SQLException")
        state = self.method(sql_exception, "getSQLState", text)
        self._sql_state = self._if_instance(sql_exception, state)
        self._pickled = self._pickling()

    def class_named(self, name: str) -> Any:
        """Return the object of a class, from the class loader of Spark's threads."""
        thread = jvm_class(self._jvm, "java.lang.Thread").currentThread()
        loader = thread.getContextClassLoader()
        return jvm_class(self._jvm, "java.lang.Class").forName(name, True, loader)

    def method(self, owner: Any, name: str, result: Any) -> Any:
        """Return the handle of a method without parameters."""
        return self.lookup.findVirtual(owner, name, self._type(result))

    def consumer(self, target: Any, owner: str, name: str, parameter: str) -> Any:
        """Return a Java function that calls a method of an object, and returns null."""
        nothing = jvm_class(self._jvm, "java.lang.Void").TYPE
        kind = self._type(nothing, self.class_named(parameter))
        handle = self.lookup.findVirtual(self.class_named(owner), name, kind)
        return self.function(handle.bindTo(target))

    def function(self, handle: Any) -> Any:
        """Return a Java function that calls a handle of one parameter."""
        function = self.class_named("java.util.function.Function")
        typed = handle.asType(self._type(self._object, self._object))
        proxies = jvm_class(self._jvm, "java.lang.invoke.MethodHandleProxies")
        return proxies.asInterfaceInstance(function, typed)

    def exceptions(self, objects: Any) -> list[JavaException | None]:
        """Return the exceptions in a Java array, None for any other object."""
        stacks = self._strings(objects, self._stack)
        chains: list[list[ExceptionLink]] = [[] for _ in stacks]
        for _ in range(_CAUSES):
            names = self._strings(objects, self._name)
            if not any(names):
                break
            messages = self._strings(objects, self._message)
            conditions = self._strings(objects, self._condition)
            states = self._strings(objects, self._sql_state)
            for index, name in enumerate(names):
                if name is not None:
                    if name not in self._names:
                        self._names[name] = class_names(name, objects[index].getClass())
                    message = (messages[index] or "").strip()
                    condition = conditions[index] or states[index]
                    chains[index].append(ExceptionLink(self._names[name], message, condition))
            objects = self.map(objects, self._cause)
        return [
            JavaException(chain, stack or "") if chain else None
            for chain, stack in zip(chains, stacks, strict=True)
        ]

    def map(self, objects: Any, function: Any) -> Any:
        """Return a Java array of a function's results for each element of another array."""
        return jvm_class(self._jvm, "java.util.Arrays").stream(objects).map(function).toArray()

    def _strings(self, objects: Any, function: Any) -> Sequence[str | None]:
        pickled = base64.b64decode(self._pickled.apply(self.map(objects, function)))
        # The pickle is from this driver's own JVM.
        strings: Sequence[str | None] = pickle.loads(pickled)  # nosec B301
        return strings

    def _pickling(self) -> Any:
        """Return a Java function that pickles an object, as Base64.

        Bytes would be read by py4j one at a time.
        """
        pickler, byte_array = map(self.class_named, ("net.razorvine.pickle.Pickler", "[B"))
        encoder = jvm_class(self._jvm, "java.util.Base64").getEncoder()
        text = self.class_named("java.lang.String")
        encode = self.lookup.bind(encoder, "encodeToString", self._type(text, byte_array))
        dump = self.lookup.findVirtual(pickler, "dumps", self._type(byte_array, self._object))
        nothing = jvm_class(self._jvm, "java.lang.Void").TYPE
        # A pickler has a state, so each call has its own.
        create = self.lookup.findConstructor(pickler, self._type(nothing))
        return self.function(
            self.handles.filterReturnValue(self.handles.foldArguments(dump, create), encode)
        )

    def _if_instance(self, kind: Any, handle: Any) -> Any:
        """Return a function that calls the handle for objects of a class, else returns null."""
        boolean = jvm_class(self._jvm, "java.lang.Boolean").TYPE
        is_instance = self.lookup.bind(kind, "isInstance", self._type(boolean, self._object))
        object_to_object = self._type(self._object, self._object)
        null = self.handles.dropArguments(
            self.handles.constant(self._object, None),
            0,
            jvm_class(self._jvm, "java.util.List").of(self._object),
        )
        typed = handle.asType(object_to_object)
        return self.function(self.handles.guardWithTest(is_instance, typed, null))


def java_inspector(spark: SparkSession) -> JavaInspector:
    """Return the inspector of a session's JVM."""
    # Each micro-batch has its own session.
    return _inspector(spark._jvm)


@lru_cache(maxsize=1)
def _inspector(jvm: Any) -> JavaInspector:
    return JavaInspector(jvm)


def class_names(name: str, cls: Any) -> tuple[str, ...]:
    """Return the names of an exception's class and of its superclasses below Throwable."""
    names = [name]
    while (cls := cls.getSuperclass()) is not None and cls.getName() != "java.lang.Throwable":
        names.append(str(cls.getName()))
    return tuple(names)
