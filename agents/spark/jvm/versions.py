"""The versions of Spark that the agent runs on, and the private names that it needs of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import class_object, has_jvm_class, method_names
from arrester.domain.errors import ArresterError

_log = logging.getLogger("arrester.agent")

#: The minor versions that the tests run on, oldest first.
TESTED: Final = ((3, 5), (4, 0), (4, 1), (4, 2), (4, 3))
#: The private parts of PySpark that `agents.spark` and `agents.worker` import.
_PYTHON: Final = (
    "pyspark.errors.exceptions.captured.CapturedException",
    "pyspark.sql.classic.column.Column",
    "pyspark.sql.pandas.types.to_arrow_schema",
    "pyspark.sql.pandas.types.to_arrow_type",
    "pyspark.sql.pandas.utils.require_minimum_pandas_version",
    "pyspark.sql.pandas.utils.require_minimum_pyarrow_version",
)
_SQL = "org.apache.spark.sql"
#: The class of DataFrames in the JVM, since 4.0.
DATASET: Final = f"{_SQL}.classic.Dataset"
_EXPRESSIONS = f"{_SQL}.catalyst.expressions"
#: The classes of the JVM that modules of this package use, with the methods called on them.
_JVM: Final[Mapping[str, tuple[str, ...]]] = {
    "net.razorvine.pickle.Pickler": ("dumps",),
    "org.apache.commons.io.IOUtils": ("toString",),
    "org.apache.hadoop.mapreduce.Job": ("getConfiguration", "getInstance"),
    "org.apache.hadoop.mapreduce.TaskAttemptID": (),
    "org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl": (),
    "org.apache.spark.SparkStatusTracker": ("getActiveJobIds", "getJobIdsForTag", "getJobInfo"),
    "org.apache.spark.SparkThrowable": ("getCondition",),
    "org.apache.spark.api.python.PythonUtils": ("toScalaMap", "toSeq"),
    "org.apache.spark.metrics.source.LongAccumulatorSource": (),
    "org.apache.spark.status.AppStatusStore": (
        "jobWithAssociatedSql",
        "lastStageAttempt",
        "taskList",
    ),
    "org.apache.spark.status.api.v1.TaskSorting": (),
    "org.apache.spark.status.api.v1.TaskStatus": (),
    "org.apache.spark.storage.StorageLevel": ("MEMORY_AND_DISK",),
    "org.apache.spark.unsafe.types.UTF8String": ("fromString",),
    "org.apache.spark.util.LongAccumulator": ("add", "isZero", "register", "sum"),
    "org.apache.spark.util.Utils": ("deserialize", "exceptionString", "serialize"),
    f"{_SQL}.SaveMode": (),
    f"{_SQL}.api.python.PythonSQLUtils": ("readArrowStreamFromFile", "toDataFrame"),
    f"{_SQL}.catalyst.InternalRow": ("copy",),
    f"{_SQL}.catalyst.analysis.UnresolvedAttribute": ("quoted",),
    f"{_SQL}.catalyst.analysis.UnresolvedRelation": (),
    f"{_SQL}.catalyst.analysis.UnresolvedStar": (),
    f"{_SQL}.catalyst.util.DateTimeUtils": ("getZoneId",),
    f"{_SQL}.catalyst.plans.QueryPlan": ("expressions", "inputSet", "outputSet"),
    f"{_SQL}.catalyst.plans.logical.AppendData": ("byName",),
    f"{_SQL}.catalyst.plans.logical.Filter": ("condition",),
    f"{_SQL}.catalyst.plans.logical.LocalRelation": ("data",),
    f"{_SQL}.catalyst.plans.logical.Project": ("projectList", "withNewChildren"),
    f"{_SQL}.catalyst.trees.TreePattern": ("PYTHON_UDF",),
    DATASET: ("ofRows", "queryExecution"),
    f"{_SQL}.classic.SparkSession": ("setActiveSession",),
    f"{_SQL}.classic.ExpressionUtils": ("column", "expression"),
    f"{_SQL}.execution.CacheManager": ("recacheByPlan",),
    f"{_SQL}.execution.CommandExecutionMode": ("SKIP",),
    f"{_SQL}.execution.FileSourceScanExec": ("partitionFilters", "relation"),
    f"{_SQL}.execution.QueryExecution": (
        *("analyzed", "executedPlan", "optimizedPlan", "sparkPlan", "toRdd"),
    ),
    f"{_SQL}.execution.SparkPlan": ("executeCollect",),
    f"{_SQL}.execution.columnar.InMemoryRelation": ("cacheBuilder",),
    f"{_SQL}.execution.ui.SQLAppStatusStore": ("execution",),
    f"{_SQL}.execution.ui.SQLExecutionUIData": ("details", "physicalPlanDescription"),
    f"{_SQL}.execution.datasources.DataSource": ("lookupDataSource",),
    f"{_SQL}.execution.datasources.OutputWriter": ("close", "write"),
    f"{_SQL}.execution.datasources.OutputWriterFactory": ("getFileExtension", "newInstance"),
    f"{_SQL}.execution.datasources.jdbc.JDBCOptions": (),
    f"{_SQL}.execution.datasources.json.JsonFileFormat": ("prepareWrite",),
    f"{_SQL}.execution.datasources.parquet.ParquetFileFormat": ("prepareWrite",),
    f"{_SQL}.execution.datasources.v2.DataSourceV2Relation": ("create",),
    f"{_SQL}.jdbc.JdbcDialects": ("get",),
    f"{_SQL}.types.ObjectType": (),
    f"{_SQL}.util.CaseInsensitiveStringMap": ("empty",),
    f"{_EXPRESSIONS}.Alias": ("toAttribute",),
    f"{_EXPRESSIONS}.And": (),
    f"{_EXPRESSIONS}.Cast": ("canANSIStoreAssign", "canUpCast"),
    f"{_EXPRESSIONS}.Coalesce": (),
    f"{_EXPRESSIONS}.CreateNamedStruct": (),
    f"{_EXPRESSIONS}.EquivalentExpressions": ("addExprTree", "getCommonSubexpressions"),
    f"{_EXPRESSIONS}.InterpretedMutableProjection": ("apply", "initialize"),
    f"{_EXPRESSIONS}.Literal": (),
    f"{_EXPRESSIONS}.Not": (),
    f"{_EXPRESSIONS}.Nondeterministic": (),
    f"{_EXPRESSIONS}.TryEval": (),
    f"{_EXPRESSIONS}.Unevaluable": (),
    f"{_EXPRESSIONS}.codegen.CodeAndComment": (),
    f"{_EXPRESSIONS}.codegen.CodeGenerator": ("compile",),
    f"{_EXPRESSIONS}.codegen.GeneratedClass": ("generate",),
    f"{_EXPRESSIONS}.objects.InitializeJavaBean": (),
    f"{_EXPRESSIONS}.objects.Invoke": (),
    f"{_EXPRESSIONS}.objects.StaticInvoke": (),
}
#: The setting of ANSI mode, which is on by default since 4.0.
ANSI: Final = "spark.sql.ansi.enabled"


class SparkRefused(ArresterError):
    """The agent does not run on this Spark session; the message names what to use."""


def require_supported(spark: SparkSession) -> None:
    """Raise SparkRefused for a session that the agent does not run on."""
    if not hasattr(spark, "_jvm"):
        raise SparkRefused(
            "Arrester needs a classic Spark session, not Spark Connect (unset SPARK_REMOTE and "
            f"build it without .remote()); this is of type {type(spark).__name__}"
        )
    context = getattr(spark, "sparkContext", spark)
    if getattr(context, "_jsc", context) is None:
        raise SparkRefused("the Spark session is stopped; build a new one")
    _require_version(spark._jvm, spark.version)
    session: Any = spark._jsparkSession
    # Without ANSI mode, Spark returns NULL where a record is to fail.
    returns_null = not has_jvm_class(spark._jvm, DATASET) and not (
        session.sessionState().conf().contains(ANSI)
    )
    if returns_null:
        raise SparkRefused(
            f"Spark {spark.version} returns NULL for an invalid cast or a division by zero: set "
            f"{ANSI} to true, so that its record fails, or to false to keep the NULL"
        )


@lru_cache(maxsize=1)
def _require_version(jvm: Any, version: str) -> None:
    newest, oldest = TESTED[-1], TESTED[0]
    numbers = re.match(r"(\d+)\.(\d+)", version)
    # A version without numbers is checked like one that is newer than the tested ones.
    minor = (newest[0] + 1, 0) if numbers is None else (int(numbers[1]), int(numbers[2]))
    if minor < oldest:
        raise SparkRefused(
            f"Arrester needs Spark {_version_text(oldest)} or newer; this is {version}"
        )
    if minor <= newest:
        return
    missing = missing_names(jvm)
    if missing:
        raise SparkRefused(
            f"Arrester does not run on Spark {version}: it lacks {', '.join(missing)} "
            f"(tested: {_version_text(oldest)} to {_version_text(newest)})"
        )
    _log.warning(
        "Spark %s is newer than the tested versions (%s to %s); it has all that the agent uses",
        *(version, _version_text(oldest), _version_text(newest)),
    )


def _version_text(minor: tuple[int, int]) -> str:
    return f"{minor[0]}.{minor[1]}"


def missing_names(jvm: Any) -> list[str]:
    """Return the private names that the agent uses and this Spark does not have."""
    missing = [name for name in _PYTHON if not _has_python(*name.rsplit(".", 1))]
    for name, methods in _JVM.items():
        loaded = class_object(jvm, name)
        if loaded is None:
            missing.append(name)
            continue
        present = method_names(loaded)
        missing += [f"{name}.{method}" for method in methods if method not in present]
    return missing


def _has_python(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False
