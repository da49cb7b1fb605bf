"""Delta's Java API: appends in a transaction, and the numbers that a table's log has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.jvm.classes import (
    class_object,
    has_jvm_class,
    has_jvm_method,
    jvm_class,
)
from arrester.agents.spark.jvm.plans.catalyst import (
    analysed_plan,
    frame_of,
    to_list,
    to_scala_map,
    to_seq,
)

_DELTA: Final = "org.apache.spark.sql.delta"
_LOG: Final = f"{_DELTA}.DeltaLog"
_COMMAND: Final = f"{_DELTA}.commands.WriteIntoDelta"
_WRITE: Final = f"{_DELTA}.DeltaOperations$Write"
_TRANSACTION: Final = f"{_DELTA}.OptimisticTransaction"
_COLUMNS: Final = f"{_DELTA}.ColumnWithDefaultExprUtils"
_APPEND: Final = "org.apache.spark.sql.catalyst.plans.logical.AppendData"
_RELATION: Final = "org.apache.spark.sql.catalyst.analysis.UnresolvedRelation"
_OPTIONS: Final = "org.apache.spark.sql.util.CaseInsensitiveStringMap"
#: Methods of the versions of Delta whose classes `Append` knows, and those of later ones.
_KNOWN: Final = (
    (_COMMAND, "writeAndReturnCommitData$default$4"),
    (_COMMAND, "copy$default$8"),
    (_WRITE, "copy$default$4"),
    (_TRANSACTION, "readTxn"),
    (f"{_DELTA}.Snapshot", "checksumOpt"),
)
_LATER: Final = (
    (_COMMAND, "copy$default$9"),
    (_WRITE, "copy$default$5"),
    (_APPEND, "byName$default$4"),
)


def last_version(spark: SparkSession, location: str, application: str) -> int | None:
    """Return the last `txnVersion` that a table has of a `txnAppId`, None if it has none."""
    log: Any = jvm_class(spark._jvm, _LOG).forTable(spark._jsparkSession, location)
    return _last(log.unsafeVolatileSnapshot().setTransactions(), application)


def can_append_in_transaction(spark: SparkSession) -> bool:
    """Whether `Append` knows the classes of this session."""
    jvm = spark._jvm
    if not has_jvm_class(jvm, _COMMAND):
        return False
    has_known = all(has_jvm_method(jvm, *each) for each in _KNOWN)
    return has_known and not any(has_jvm_method(jvm, *each) for each in _LATER)


def _last(transactions: Any, application: str) -> int | None:
    versions = [each.version() for each in to_list(transactions) if each.appId() == application]
    return max(versions, default=None)


def _analysed(df: DataFrame, identifier: str, options: Any) -> Any:
    """Return the analysed plan of `df.writeTo(identifier).append()`."""
    spark = df.sparkSession
    jvm: Any = spark._jvm
    state = spark._jsparkSession.sessionState()
    names = state.sqlParser().parseMultipartIdentifier(identifier)
    table = jvm_class(jvm, _RELATION)(names, jvm_class(jvm, _OPTIONS).empty(), False)
    plan = jvm_class(jvm, _APPEND).byName(table, analysed_plan(df), options)
    skip = jvm_class(jvm, "org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    return state.executePlan(plan, skip).analyzed()


@dataclass(slots=True, kw_only=True)
class Append:
    """An append to a Delta table in a transaction, whose commit shows the rows.

    It does what `df.writeTo(…).append()` does with `txnAppId`, which reads the whole log for the
    number. It conflicts with other transactions that store a number of the same application.
    """

    spark: SparkSession
    application: str
    number: int
    #: Delta's table, its transaction, its command, and the result of the command.
    _table: Any
    _transaction: Any
    _command: Any
    _written: Any = None

    @classmethod
    def begin(
        cls,
        df: DataFrame,
        identifier: str,
        *,
        options: Mapping[str, str],
        application: str,
        number: int,
    ) -> Append:
        """Begin a transaction without a Spark job; raises exceptions of Spark."""
        spark = df.sparkSession
        jvm: Any = spark._jvm
        state = spark._jsparkSession.sessionState()
        settings = {**options, "txnAppId": application, "txnVersion": str(number)}
        if state.conf().useNullsForMissingDefaultColumnValues():
            settings[jvm_class(jvm, _COLUMNS).USE_NULL_AS_DEFAULT_DELTA_OPTION()] = "true"
        given = to_scala_map(jvm, settings)
        append = _analysed(df, identifier, given)
        table, none = append.table().table(), jvm_class(jvm, "scala.Option").empty()
        transaction = table.startTransaction(none)
        # Delta itself does this when it looks up the number.
        transaction.readTxn().addOne(application)
        command = jvm_class(jvm, _COMMAND)(
            table.deltaLog(),
            jvm_class(jvm, "org.apache.spark.sql.SaveMode").Append,
            jvm_class(jvm, f"{_DELTA}.DeltaOptions")(given, state.conf()),
            to_seq(jvm, []),
            table.deltaLog().unsafeVolatileSnapshot().metadata().configuration(),
            frame_of(spark, append.query())._jdf,
            table.catalogTable(),
            none,
        )
        return cls(
            spark=spark,
            application=application,
            number=number,
            _table=table,
            _transaction=transaction,
            _command=command,
        )

    def has_number(self) -> bool:
        """Whether the table had this number, or a later one, when the transaction began.

        The checksum of a version has all numbers, unless the table limits how long they are kept,
        another writer left them out, or there are more than 100 applications.
        """
        snapshot = self._transaction.snapshot()
        checksum = snapshot.checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        stored = known.get() if known.isDefined() else snapshot.setTransactions()
        last = _last(stored, self.application)
        return last is not None and last >= self.number

    def write(self) -> None:
        """Write the files; raises exceptions of Spark."""
        jvm: Any = self.spark._jvm
        none = jvm_class(jvm, "scala.Option").empty()
        active = getattr(jvm_class(jvm, f"{_TRANSACTION}$"), "MODULE$")
        # The rows may be read from the same table.
        active.setActive(self._transaction)
        try:
            session = self.spark._jsparkSession
            self._written = self._command.writeAndReturnCommitData(
                self._transaction, session, none, False
            )
        finally:
            active.clearActive()

    def is_of_current_table(self) -> bool:
        """Whether the table was not deleted or created again meanwhile."""
        current, begun = self._table.update(), self._transaction.snapshot()
        return bool(current.metadata().id() == begun.metadata().id())

    def commit(self) -> None:
        """Commit the files and the number; raises exceptions of Delta."""
        jvm: Any = self.spark._jvm
        option = jvm_class(jvm, "scala.Option")
        operation = jvm_class(jvm, _WRITE)(
            self._command.mode(),
            option.apply(to_seq(jvm, [])),
            option.empty(),
            self._command.options().userMetadata(),
        )
        written = self._written
        self._transaction.commitIfNeeded(written.actions(), operation, written.stringTags())
        session: Any = self.spark._jsparkSession
        session.sharedState().cacheManager().recacheByPlan(session, self._table.toLogicalRelation())

    def delete_files(self) -> None:
        """Delete the files of an append that was never committed."""
        if self._written is None:
            return
        jvm: Any = self.spark._jvm
        log = self._table.deltaLog()
        store = log.dataPath().getFileSystem(log.newDeltaHadoopConf())
        file: Any = class_object(jvm, f"{_DELTA}.actions.FileAction")
        for action in to_list(self._written.actions()):
            if file.isInstance(action):
                store.delete(action.absolutePath(log), False)
