"""The table behind `classify`: plain names, so that no other package has to be installed.

Names are full dotted names of Python and Java classes, Spark error conditions (including their
sub-conditions), SQLSTATEs of JDBC drivers (the first two characters are all of a class), and the
error codes of confluent_kafka. A subclass is found by its nearest base.
"""

from __future__ import annotations

from arrester.domain.error_policy import sqlstates
from arrester.domain.error_policy.exception_identity import CONFLUENT

KAFKA = "org.apache.kafka.common.errors."
FULL_BUFFER = "immediate time-out on a full buffer"

#: The platform repairs these by itself.
SELF_HEALING: dict[str, tuple[str, ...]] = {
    "superseded by a newer run": (
        KAFKA + "ProducerFencedException",
        KAFKA + "InvalidProducerEpochException",
        KAFKA + "InvalidPidMappingException",
        KAFKA + "OutOfOrderSequenceException",
        KAFKA + "UnknownProducerIdException",
        KAFKA + "FencedInstanceIdException",
        "org.apache.kafka.streams.errors.TaskMigratedException",
        "CONCURRENT_QUERY",
        "CONCURRENT_STREAM_LOG_UPDATE",
        *(CONFLUENT + code for code in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")),
        *(CONFLUENT + code for code in ("INVALID_PRODUCER_ID_MAPPING", "FENCED_INSTANCE_ID")),
        CONFLUENT + "OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    "aborted, and begun again from the last commit": (
        KAFKA + "TransactionAbortedException",
        "org.apache.kafka.streams.errors.TaskCorruptedException",
    ),
    "a killed or preempted Spark task": (
        "org.apache.spark.TaskKilledException",
        "org.apache.spark.executor.CommitDeniedException",
        "java.lang.InterruptedException",
        "java.nio.channels.ClosedByInterruptException",
        "OPERATION_CANCELED",
        "SPARK_JOB_CANCELLED",
    ),
    # Recomputed from the source by a replay. An executor lost while it ran a task is not listed:
    # Spark raises that after losing four, and then a record may be the cause.
    "lost with an executor": (
        "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND",
        "org.apache.spark.shuffle.FetchFailedException",
        "org.apache.spark.shuffle.MetadataFetchFailedException",
        "org.apache.spark.storage.BlockNotFoundException",
    ),
}

#: The nine fatal classes of KIP-210: they affect every record.
FATAL: dict[str, tuple[str, ...]] = {
    "authentication": (
        KAFKA + "AuthenticationException",
        KAFKA + "SaslAuthenticationException",
        KAFKA + "SslAuthenticationException",
        KAFKA + "UnsupportedSaslMechanismException",
        KAFKA + "IllegalSaslStateException",
        *(CONFLUENT + code for code in ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")),
        *(CONFLUENT + code for code in ("UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE")),
        "kafka.errors.AuthenticationFailedError",
        "kafka.errors.SaslAuthenticationFailedError",
        "javax.security.auth.login.LoginException",
        "psycopg.errors.InvalidAuthorizationSpecification",
        "psycopg.errors.InvalidPassword",
        *sqlstates.FATAL_LOGIN,
        "redis.exceptions.AuthenticationError",
        "botocore.exceptions.NoCredentialsError",
    ),
    "authorization": (
        KAFKA + "AuthorizationException",
        KAFKA + "TopicAuthorizationException",
        KAFKA + "GroupAuthorizationException",
        KAFKA + "ClusterAuthorizationException",
        KAFKA + "TransactionalIdAuthorizationException",
        KAFKA + "DelegationTokenAuthorizationException",
        *(CONFLUENT + f"{what}_AUTHORIZATION_FAILED" for what in ("TOPIC", "GROUP", "CLUSTER")),
        CONFLUENT + "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "kafka.errors.TopicAuthorizationFailedError",
        "kafka.errors.GroupAuthorizationFailedError",
        "kafka.errors.ClusterAuthorizationFailedError",
        "org.apache.hadoop.security.AccessControlException",
        "java.nio.file.AccessDeniedException",
        "java.lang.SecurityException",
        "builtins.PermissionError",
        "psycopg.errors.InsufficientPrivilege",
        *sqlstates.FATAL_RIGHT,
    ),
    "security disabled": (
        KAFKA + "SecurityDisabledException",
        CONFLUENT + "SECURITY_DISABLED",
        "kafka.errors.SecurityDisabledError",
    ),
    "invalid topic or table": (
        KAFKA + "InvalidTopicException",
        CONFLUENT + "TOPIC_EXCEPTION",
        "kafka.errors.InvalidTopicError",
        "TABLE_OR_VIEW_NOT_FOUND",
        "SCHEMA_NOT_FOUND",
        "CATALOG_NOT_FOUND",
        "DATA_SOURCE_NOT_FOUND",
        "psycopg.errors.UndefinedTable",
        "psycopg.errors.DatabaseDropped",
        *sqlstates.FATAL_MISSING,
        "arrester.agents.definition.stores.iceberg_table.TableReplaced",
    ),
    "unknown server error": (
        KAFKA + "UnknownServerException",
        CONFLUENT + "UNKNOWN",
        "kafka.errors.UnknownError",
    ),
    "illegal state": (
        "java.lang.IllegalStateException",
        # A schema that does not fit, or an upgrade that changed an answer: not the fault of one
        # record.
        "java.lang.ClassCastException",
        # These are failures of the JVM. Any other Error of Java, such as AssertionError, is a
        # failure of its record.
        "java.lang.LinkageError",
        "java.lang.ThreadDeath",
        "java.lang.VirtualMachineError",
        "org.apache.spark.SparkUpgradeException",
        "INCONSISTENT_BEHAVIOR_CROSS_VERSION",
        "INTERNAL_ERROR",
        *(CONFLUENT + code for code in ("_STATE", "_FATAL")),
        "kafka.errors.IllegalStateError",
        "builtins.ImportError",
    ),
    "offset metadata too large": (
        KAFKA + "OffsetMetadataTooLarge",
        CONFLUENT + "OFFSET_METADATA_TOO_LARGE",
        "kafka.errors.OffsetMetadataTooLargeError",
    ),
    # Raised by the broker or the producer; a user's own serializer that raises is a failure of that
    # record.
    "serialization of our own output": (KAFKA + "SerializationException",),
    FULL_BUFFER: (
        # A time-out of `send` itself, in any class.
        "arrester.FullBuffer",
        "builtins.BufferError",
        CONFLUENT + "_QUEUE_FULL",
    ),
}

#: Failures of one record, although their parent condition or their class is above. Which texts the
#: parsers of Spark 2 and 3 read in different ways is a question of the text.
OF_RECORD = ("INCONSISTENT_BEHAVIOR_CROSS_VERSION.PARSE_DATETIME_BY_NEW_PARSER",)

#: Retriable from a callback or future; a full buffer if `send` itself raises it.
TIMEOUTS_OF_SEND = (
    KAFKA + "TimeoutException",
    "kafka.errors.KafkaTimeoutError",
)

#: A further attempt may succeed.
RETRIABLE: dict[str, tuple[str, ...]] = {
    "time-out": (
        "builtins.TimeoutError",
        "java.util.concurrent.TimeoutException",
        "java.net.SocketTimeoutException",
        "java.sql.SQLTimeoutException",
        *(CONFLUENT + code for code in ("_TIMED_OUT", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT")),
        "requests.exceptions.Timeout",
        "urllib3.exceptions.TimeoutError",
        "redis.exceptions.TimeoutError",
    ),
    "conflict with another writer of the table": (
        "org.apache.spark.sql.delta.DeltaConcurrentModificationException",
        "io.delta.exceptions.DeltaConcurrentModificationException",
        # After an unknown state of a commit, the repeated call finds whether it happened.
        *(
            f"org.apache.iceberg.exceptions.{name}Exception"
            for name in ("CommitFailed", "CommitStateUnknown", "Validation")
        ),
    ),
    "connection": (
        "builtins.ConnectionError",
        "socket.gaierror",
        "http.client.IncompleteRead",
        "java.net.SocketException",
        "java.net.ConnectException",
        "java.net.NoRouteToHostException",
        "java.net.UnknownHostException",
        *(CONFLUENT + code for code in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "NETWORK_EXCEPTION")),
        KAFKA + "NetworkException",
        KAFKA + "DisconnectException",
        "requests.exceptions.ConnectionError",
        "urllib3.exceptions.ProtocolError",
        "httpx.TransportError",
        "aiohttp.client_exceptions.ClientConnectionError",
        "redis.exceptions.ConnectionError",
        "psycopg.OperationalError",
        "java.sql.SQLRecoverableException",
        "java.sql.SQLNonTransientConnectionException",
    ),
    "busy, or moving": (
        KAFKA + "RetriableException",
        "org.apache.kafka.connect.errors.RetriableException",
        KAFKA + "NotLeaderOrFollowerException",
        KAFKA + "LeaderNotAvailableException",
        KAFKA + "NotEnoughReplicasException",
        KAFKA + "NotEnoughReplicasAfterAppendException",
        KAFKA + "UnknownTopicOrPartitionException",
        KAFKA + "CoordinatorNotAvailableException",
        KAFKA + "ConcurrentTransactionsException",
        KAFKA + "ThrottlingQuotaExceededException",
        *(CONFLUENT + code for code in ("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION")),
        *(CONFLUENT + code for code in ("NOT_ENOUGH_REPLICAS", "UNKNOWN_TOPIC_OR_PART")),
        *(CONFLUENT + code for code in ("BROKER_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE")),
        # The topic is still missing after `topic.metadata.propagation.max.ms`.
        CONFLUENT + "_UNKNOWN_TOPIC",
        "kafka.errors.RetriableError",
        "psycopg.errors.SerializationFailure",
        "psycopg.errors.DeadlockDetected",
        "java.sql.SQLTransientException",
        "psycopg.errors.ReadOnlySqlTransaction",
        "psycopg.errors.IdleInTransactionSessionTimeout",
        "psycopg.errors.TransactionTimeout",
        "arrester.agents.definition.stores.jdbc_call.StagedRowsDiffer",
    ),
    "database busy, or away": tuple(sqlstates.RETRIABLE),
}

#: They carry another exception, which decides.
WRAPPERS = frozenset(
    {
        "py4j.protocol.Py4JJavaError",
        "pyspark.errors.exceptions.captured.StreamingQueryException",
        "org.apache.spark.SparkException",
        "org.apache.spark.sql.streaming.StreamingQueryException",
        "java.lang.reflect.InvocationTargetException",
        "java.lang.reflect.UndeclaredThrowableException",
        "java.sql.BatchUpdateException",
        "java.util.concurrent.CompletionException",
        "java.util.concurrent.ExecutionException",
        "org.apache.kafka.common.KafkaException",
    }
)
