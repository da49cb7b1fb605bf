"""Evaluate expressions so that a failed row changes no other row's values.

In plain Spark a task ends at the first exception. So several expressions, for example builders of
maps, do not restore their state when they raise, and the next row would get parts of the failed
one. Here, the row after a failed one is evaluated with a new copy of the expressions.

Spark compiles the Java class below wherever it is used: the agent needs no jar.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    as_column,
    children,
    has_classic,
    node_name,
    nodes,
    to_list,
    to_seq,
    transform_up,
)

_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions"
_CODE_GENERATOR: Final = f"{_EXPRESSIONS}.codegen.CodeGenerator"
_CODE: Final = f"{_EXPRESSIONS}.codegen.CodeAndComment"
_FUNCTION: Final = "scala.Function1"
_REFERENCE: Final = "java.util.concurrent.atomic.AtomicReference"
_INPUT: Final = "__arrester_input_"
#: It is a part of its own expression, as in `nullif`, which Spark computes once.
_REFERENCE_IN_EXPRESSION: Final = "CommonExpressionRef"

#: Expressions that keep nothing from one row for the next, so none of them needs a copy. A copy
#: costs about 0.1 ms for each failed row. Any other expression gets copies: a missing name costs
#: time, and nothing else.
_STATELESS: Final = frozenset(
    {
        *("Alias", "AttributeReference", "BoundReference", "Literal", "OuterReference"),
        *("And", "Or", "Not", "If", "CaseWhen", "Coalesce", "In", "InSet", "IsNull", "IsNotNull"),
        *("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan"),
        *("LessThanOrEqual", "Add", "Subtract", "Multiply", "Divide", "IntegralDivide"),
        *("Remainder", "Pmod", "UnaryMinus", "UnaryPositive", "Abs", "CheckOverflow"),
        *("CreateNamedStruct", "CreateArray", "GetStructField", "GetArrayItem", "ElementAt"),
        *("GetArrayStructFields", "Size", "KnownNotNull", "RaiseError", "SparkPartitionID"),
        *("Cast", "Upper", "Lower", "StringTrim", "Substring", "Length", "OctetLength", "Concat"),
        *("ArrayTransform", "ArrayFilter", "LambdaFunction", "NamedLambdaVariable", "MapValues"),
        "StringInstr",
        *("ParseToDate", "ParseToTimestamp", "GetTimestamp", "DateAdd", "DateDiff", "Hex"),
        *("Sha2", "AvroDataToCatalyst", "CsvToStructs", "JsonToStructs", "XmlToStructs"),
    }
)

_JAVA: Final = """
public Object generate(Object[] references) {
  return new IsolatedEvaluation(references);
}

static class IsolatedEvaluation extends scala.runtime.AbstractFunction1
    implements java.util.function.Function {
  private final byte[] steps;
  private final boolean returnsExceptions;
  private final boolean keepsState;
  private scala.Function1[] projections;

  IsolatedEvaluation(Object[] references) {
    steps = (byte[]) references[0];
    returnsExceptions = ((Boolean) references[1]).booleanValue();
    keepsState = ((Boolean) references[2]).booleanValue();
    // Each Spark task has its own reference. On the driver, outside of tasks, it is shared.
    if (org.apache.spark.TaskContext.get() != null) {
      ((java.util.concurrent.atomic.AtomicReference) references[3]).set(this);
    }
  }

  public Object apply(Object row) {
    try {
      if (projections == null) projections = newProjections();
      Object result = row;
      for (int i = 0; i < projections.length; i++) result = projections[i].apply(result);
      return ((InternalRow) result).copy();
    } catch (Throwable exception) {
      if (keepsState) projections = null;
      if (returnsExceptions) return exception;
      boolean endsTheTask = !scala.util.control.NonFatal.apply(exception)
          || exception instanceof org.apache.spark.TaskKilledException;
      if (endsTheTask) throw exception;
      return null;
    }
  }

  private scala.Function1[] newProjections() {
    Object[] parts = (Object[]) org.apache.spark.util.Utils.deserialize(
        steps, Thread.currentThread().getContextClassLoader());
    scala.Function1[] created = new scala.Function1[parts.length / 2];
    for (int i = 0; i < created.length; i++) {
      org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection projection =
          new org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection(
              (SEQ) parts[2 * i], (SEQ) parts[2 * i + 1]);
      projection.initialize(org.apache.spark.TaskContext.getPartitionId());
      created[i] = projection;
    }
    return created;
  }
}
"""


def may_keep_state(expression: Any) -> bool:
    """Whether an analysed expression may keep something from one row for the next."""
    return any(
        node_name(node) not in _STATELESS and not _is_map_of_one_pair(node)
        for node in nodes(expression)
    )


def _is_map_of_one_pair(node: Any) -> bool:
    """Whether a node builds a map whose builder never keeps a part of a failed row.

    `raise_error` has one: the builder gets the pair after both its parts have been evaluated.
    """
    return node_name(node) == "CreateMap" and len(children(node)) == 2


def isolated_attempt(spark: SparkSession, expressions: Mapping[str, Any]) -> Any:
    """Return an expression: a struct of analysed `expressions`, NULL if one of them raised.

    Errors of Java that are no failure of the JVM, such as AssertionError, count as raised.
    """
    inputs: list[Any] = []
    for node in [node for expression in expressions.values() for node in nodes(expression)]:
        if _is_input(spark, node) and not any(each.equals(node) for each in inputs):
            inputs.append(node)
    frame = _empty_frame(spark, inputs)
    columns = to_list(analysed_plan(frame).output())

    def with_columns(node: Any) -> Any:
        pairs = zip(inputs, columns, strict=True) if _is_input(spark, node) else ()
        return next((column for each, column in pairs if each.equals(node)), node)

    values = [
        as_column(spark, transform_up(spark, expression, with_columns)).alias(name)
        for name, expression in expressions.items()
    ]
    # The optimizer does not evaluate a condition's branch, which could raise.
    is_row = F.spark_partition_id() >= 0
    struct = F.when(is_row, F.struct(*values)).alias(_INPUT)
    project = frame.select(struct)._jdf.queryExecution().optimizedPlan()
    branch = project.projectList().apply(0).child().branches().apply(0)
    optimized = branch._2()
    if node_name(optimized) == "Literal":
        return optimized
    steps = _serialized(spark, [(optimized.valExprs(), project.child().output())])
    return _call(spark, steps, _row(spark, inputs), optimized.dataType())


def isolated_function(
    spark: SparkSession, projections: list[tuple[Any, Any]], *, keeps_state: bool
) -> Any:
    """Return a Java function from a row to that after the projections, or to their exception.

    A projection is a Scala Seq of expressions, and one of its input's columns. If they may keep a
    state, each exception is followed by a new copy of them, which takes some milliseconds.
    """
    code_generator = jvm_class(spark._jvm, _CODE_GENERATOR)
    generated = code_generator.compile(_code(spark))._1()
    return generated.generate(
        _array(spark, [_serialized(spark, projections), True, keeps_state, None])
    )


def _is_input(spark: SparkSession, node: Any) -> bool:
    """Whether a node is evaluated before, for all copies of the expression.

    A new copy must continue, not begin again, what counts rows or draws numbers. What Spark sets
    per query, such as the time, cannot be evaluated in a copy.
    """
    if node_name(node) == "AttributeReference":
        return True
    if node_name(node) == _REFERENCE_IN_EXPRESSION:
        return False
    below = children(node)
    is_leaf = all(child.foldable() for child in below)
    is_unevaluable = not below and _is_instance(spark, node, f"{_EXPRESSIONS}.Unevaluable")
    return is_unevaluable or (
        is_leaf and _is_instance(spark, node, f"{_EXPRESSIONS}.Nondeterministic")
    )


def _is_instance(spark: SparkSession, node: Any, name: str) -> bool:
    return bool(_class_object(spark._jvm, name).isInstance(node))


def _empty_frame(spark: SparkSession, inputs: list[Any]) -> DataFrame:
    """Return a frame with a column for each input.

    It has an RDD: over rows on the driver, the optimizer would evaluate the expressions.
    """
    session: Any = spark._jsparkSession
    schema = session.parseDataType(T.StructType().json())
    for number, each in enumerate(inputs):
        schema = schema.add(f"{_INPUT}{number}", each.dataType(), True)
    context: Any = spark.sparkContext
    return DataFrame(session.createDataFrame(context._jsc.emptyRDD(), schema), spark)


def _row(spark: SparkSession, inputs: list[Any]) -> Any:
    """Return an expression: a struct of the inputs."""
    jvm: Any = spark._jvm
    text = jvm_class(jvm, "org.apache.spark.unsafe.types.UTF8String").fromString
    string, literal = spark._jsparkSession.parseDataType('"string"'), f"{_EXPRESSIONS}.Literal"
    names = [jvm_class(jvm, literal)(text(f"{_INPUT}{n}"), string) for n in range(len(inputs))]
    parts = [part for field in zip(names, inputs, strict=True) for part in field]
    return jvm_class(jvm, f"{_EXPRESSIONS}.CreateNamedStruct")(to_seq(jvm, parts))


def _call(spark: SparkSession, steps: Any, row: Any, kind: Any) -> Any:
    """Return an expression that calls the task's IsolatedEvaluation, and first creates it."""
    jvm: Any = spark._jvm
    nothing = to_seq(jvm, [])
    reference = jvm_class(jvm, _REFERENCE)()

    def invoke(target: Any, name: str, result: Any, *arguments: Any) -> Any:
        given = to_seq(jvm, list(arguments))
        return jvm_class(jvm, f"{_EXPRESSIONS}.objects.Invoke")(
            *(target, name, result, given, nothing, False, True, False)
        )

    function = _object_type(jvm, _FUNCTION)
    existing = invoke(_object(jvm, reference, _REFERENCE), "get", function)
    compiled = _static_invoke(
        jvm, _CODE_GENERATOR, "compile", _object(jvm, _code(spark), _CODE), "scala.Tuple2"
    )
    generated_class = _object_type(jvm, f"{_EXPRESSIONS}.codegen.GeneratedClass")
    references = _object(jvm, _array(spark, [steps, False, True, reference]), "[Ljava.lang.Object;")
    created = invoke(invoke(compiled, "_1", generated_class), "generate", function, references)
    evaluation = jvm_class(jvm, f"{_EXPRESSIONS}.Coalesce")(to_seq(jvm, [existing, created]))
    return invoke(evaluation, "apply", kind, row)


def _static_invoke(jvm: Any, owner: str, name: str, argument: Any, result: str) -> Any:
    """Return an expression that calls a static method of a class with one argument."""
    static_invoke = f"{_EXPRESSIONS}.objects.StaticInvoke"
    parameters = [_class_object(jvm, owner), _object_type(jvm, result), name]
    parameters += [to_seq(jvm, [argument]), to_seq(jvm, []), False, True, False]
    if _class_object(jvm, static_invoke).getConstructors()[0].getParameterCount() > len(parameters):
        # In Spark 4: the function of a catalog that it is an implementation of.
        parameters.append(jvm_class(jvm, "scala.Option").empty())
    return jvm_class(jvm, static_invoke)(*parameters)


def _serialized(spark: SparkSession, projections: list[tuple[Any, Any]]) -> Any:
    """Return the projections as bytes of Java: each copy of them is read from these.

    An expression's own copies would share the objects that it calls, such as functions of users.
    """
    parts = [part for projection in projections for part in projection]
    return jvm_class(spark._jvm, "org.apache.spark.util.Utils").serialize(_array(spark, parts))


def _array(spark: SparkSession, items: list[Any]) -> Any:
    context: Any = spark.sparkContext
    array = context._gateway.new_array(jvm_class(spark._jvm, "java.lang.Object"), len(items))
    for index, item in enumerate(items):
        array[index] = item
    return array


def _object(jvm: Any, value: Any, name: str) -> Any:
    return jvm_class(jvm, f"{_EXPRESSIONS}.Literal")(value, _object_type(jvm, name))


def _object_type(jvm: Any, name: str) -> Any:
    return jvm_class(jvm, "org.apache.spark.sql.types.ObjectType")(_class_object(jvm, name))


@lru_cache(maxsize=32)
def _class_object(jvm: Any, name: str) -> Any:
    return jvm_class(jvm, "java.lang.Class").forName(name)


def _code(spark: SparkSession) -> Any:
    # The Seq of Spark's own signatures.
    sequence = "scala.collection.immutable.Seq" if has_classic(spark) else "scala.collection.Seq"
    comments = jvm_class(spark._jvm, "org.apache.spark.api.python.PythonUtils").toScalaMap({})
    return jvm_class(spark._jvm, _CODE)(_JAVA.replace("SEQ", sequence), comments)
