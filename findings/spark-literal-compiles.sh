#!/usr/bin/env bash
# Spark: a query that differs from the one before only in a number or a time is compiled again, one that
# differs in a text, a decimal or an array is not.
#
# Versions: pyspark 4.3.0; the same on 4.0.5 and 3.5.9.
#
# Spark generates Java code for a query, and keeps the classes of the last hundred texts of code
# (spark.sql.codegen.cache.maxEntries). A literal of a primitive Java type (int, double, date, timestamp) is
# written into the text, so that each value is a new text: each query compiles its classes anew, for tens of
# milliseconds, and drives others out of the cache. Literals of strings, decimals, binaries and arrays are
# passed by reference, and all values share one class. In foreachBatch, lit(batch_id) or the time of the
# micro-batch compiles in every micro-batch.
#
# What to do: in a query that is repeated, let what changes be a string or decimal literal, or a column of the
# data. A cast of such a literal does not help: the optimizer folds it to a number before code is generated.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install pyspark==4.3.0

cat >"$FOLDER/expected" <<'EOF'
int: classes compiled for 4 values: [2, 2, 2, 2]
double: classes compiled for 4 values: [2, 2, 2, 2]
date: classes compiled for 4 values: [2, 2, 2, 2]
timestamp: classes compiled for 4 values: [2, 2, 2, 2]
string: classes compiled for 4 values: [2, 0, 0, 0]
decimal: classes compiled for 4 values: [2, 0, 0, 0]
array: classes compiled for 4 values: [2, 0, 0, 0]
EOF
spark - >"$FOLDER/seen" <<'EOF'
from datetime import date, datetime
from decimal import Decimal

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
compilations = metrics.METRIC_COMPILATION_TIME()
id, days = F.col("id"), (1, 2, 3, 4)
CASES = {
    "int": (lambda each: id + F.lit(each), days),
    "double": (lambda each: id * F.lit(each), [day + 0.5 for day in days]),
    "date": (
        lambda each: F.date_from_unix_date(id.cast("int")) > F.lit(each),
        [date(2026, 1, day) for day in days],
    ),
    "timestamp": (
        lambda each: F.timestamp_seconds(id) > F.lit(each),
        [datetime(2026, 1, day) for day in days],
    ),
    "string": (lambda each: F.concat(id.cast("string"), F.lit(each)), "abcd"),
    "decimal": (
        lambda each: id.cast("decimal(10,2)") + F.lit(each),
        [Decimal(f"1.{day}0") for day in days],
    ),
    "array": (lambda each: F.array_contains(F.lit([each, "z"]), id.cast("string")), "abcd"),
}
for name, (query, values) in CASES.items():
    found = []
    for each in values:
        before = compilations.getCount()
        rows = spark.range(3).select(query(each).alias("x"))
        rows.write.format("noop").mode("overwrite").save()
        found.append(compilations.getCount() - before)
    print(f"{name}: classes compiled for 4 values: {found}")
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
