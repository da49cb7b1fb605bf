#!/usr/bin/env bash
# Spark SQL: a try_ function puts map entries of one row into the value of another row.
#
# Versions: pyspark 4.3.0; the same on 3.5.9.
#
# try_add of a date, try_subtract, try_to_binary and other functions catch any exception of their arguments
# and return NULL. But the builder of maps in str_to_map and map_from_entries is one object for all rows of
# a partition. After an exception it still has the entries of the failed row, and the next row gets them.
#
# Invoice 1 repeats the key 'rate', which is an error. Invoice 2 has no 'days': alone, its due date is NULL.
# After invoice 1 it has the 30 days of invoice 1. The result depends on the order and the partitions of the
# rows, and no warning is logged.
#
# What to do: set spark.sql.mapKeyDedupPolicy to LAST_WIN, so that a repeated key is no error.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install pyspark==4.3.0

cat >"$FOLDER/expected" <<'EOF'
after invoice 1: (1, None) (2, '2026-01-31') (3, '2026-01-08')
without invoice 1: (2, None) (3, '2026-01-08')
EOF
spark - >"$FOLDER/seen" <<'EOF'
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
invoices = [(1, "days:30,rate:2,rate:3"), (2, "fee:5"), (3, "days:7")]
table = spark.createDataFrame(invoices, "id int, terms string").coalesce(1)
days = "CAST(str_to_map(terms, ',', ':')['days'] AS INT)"


def due(frame):
    rows = frame.selectExpr("id", f"CAST(try_add(DATE'2026-01-01', {days}) AS STRING)").collect()
    return " ".join(str(tuple(row)) for row in rows)


print("after invoice 1:", due(table))
print("without invoice 1:", due(table.where("id > 1")))
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
