"""The modules that the functions of a pipeline use on executors."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Producer
from arrester.agents.definition.steps import Process

#: Executors have Python's modules and PySpark; PySpark's pickler sends the main module's functions.
_OWN = frozenset({*sys.stdlib_module_names, "__main__", "__mp_main__", "pyspark"})


def python_functions(pipeline: Pipeline) -> list[Callable[..., object]]:
    """Return the author's functions that run in Python on executors."""
    functions: list[object] = [
        step.function for step in pipeline.steps if isinstance(step, Process)
    ]
    if isinstance(pipeline.sink, Producer):
        functions.append(pipeline.sink.function)
    return [each for each in functions if callable(each)]


def modules_of(function: object) -> set[str]:
    """Return the top-level modules, without Python's own, that a function imports or refers to."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    if not isinstance(function, FunctionType):
        # An object with a method `__call__`.
        function = getattr(type(function), "__call__", None)  # noqa: B004  # the function itself
    if not isinstance(function, FunctionType):
        return set()
    names: set[object] = {function.__module__, *_imported(function.__code__)}
    for name in _names(function.__code__):
        value: object = function.__globals__.get(name)
        names.add(
            value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        )
    tops = {name.partition(".")[0] for name in names if isinstance(name, str)}
    return {name for name in tops if name and name not in _OWN}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _names(code: CodeType) -> set[str]:
    return {name for each in _codes(code) for name in each.co_names}


def _imported(code: CodeType) -> set[str]:
    """Return the modules that are imported inside a function."""
    return {
        str(instruction.argval)
        for each in _codes(code)
        for instruction in dis.get_instructions(each)
        if instruction.opname == "IMPORT_NAME"
    }
