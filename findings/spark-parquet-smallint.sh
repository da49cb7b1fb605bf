#!/usr/bin/env bash
# Spark: a Parquet INT read as SMALLINT loses its upper bits, and a filter contradicts the values shown.
#
# Versions: pyspark 4.3.0; the same on 3.5.9. Both in ANSI mode.
#
# A column that was widened from SMALLINT to INT is read with the older schema. 70000 becomes 4464 without an
# error, though CAST(70000 AS SMALLINT) raises one. Spark compares a pushed filter with the statistics of the
# file, which are of the stored values, and then with the rows, which are of the read ones. So `a = 4464` finds
# no row of a table that shows 4464, and finds it if the same file has a 5 as well. Other pairs of types,
# such as BIGINT read as INT, are refused.
#
# What to do: read with the schema of the files and CAST afterwards.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install pyspark==4.3.0

cat >"$FOLDER/expected" <<'EOF'
[70000]: all [4464], a = 4464 [], a > 5000 []
[5, 70000]: all [5, 4464], a = 4464 [4464], a > 5000 []
cast: refused
bigint read as int: refused
EOF
spark - >"$FOLDER/seen" <<'EOF'
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def refused(action):
    try:
        return action()
    except Exception:
        return "refused"


def write(values, type_, path):
    spark.createDataFrame([(each,) for each in values], f"a {type_}").coalesce(1).write.parquet(path)


for number, values in enumerate(([70000], [5, 70000])):
    write(values, "int", f"table{number}")
    table = spark.read.schema("a smallint").parquet(f"table{number}")
    parts = {"all": table, "a = 4464": table.where("a = 4464"), "a > 5000": table.where("a > 5000")}
    shown = (f"{name} {[row.a for row in part.collect()]}" for name, part in parts.items())
    print(f"{values}: {', '.join(shown)}")
print("cast:", refused(lambda: spark.sql("SELECT CAST(70000 AS SMALLINT)").collect()))
write([70000], "bigint", "wide")
print("bigint read as int:", refused(lambda: spark.read.schema("a int").parquet("wide").collect()))
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
