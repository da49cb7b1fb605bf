#!/usr/bin/env bash
# Avro: Spark reads other values than Avro's Python libraries, from the same bytes and the same two schemas.
#
# Versions: fastavro 1.13.1, avro 1.12.1 (Apache's own for Python), pyspark 4.2.0 with its spark-avro, which
# uses Avro for Java; the same with pyspark 4.0.0.
#
# The schema of a topic evolves in a logical type only; the underlying types (bytes, long, int) agree. In
# from_avro the logical type of the reader is applied to the number of the writer: 1.2345 is read as 123.45,
# and a day of 2026 is one of 1970. fastavro and avro apply the logical type of the writer, and return the
# values that were written, in a type that the reader's schema does not name. The specification lets two
# decimals match only if scale and precision are the same, so all three accept schemas that do not match.
#
# What to do: compare the logical types of both schemas before reading, or add a field in place of changing one.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install pyspark==4.2.0 fastavro==1.13.1 avro==1.12.1

cat >"$FOLDER/expected" <<'EOF'
decimal(10,4) as decimal(10,2): fastavro 1.2345, avro 1.2345, Spark 123.45
timestamp-millis as timestamp-micros: fastavro 2026-01-02, avro 2026-01-02, Spark 1970-01-21
date as timestamp-millis: fastavro 2026-01-02, avro 2026-01-02, Spark 1970-01-01
EOF
SPARK_OPTIONS="--packages org.apache.spark:spark-avro_2.13:${PYSPARK:-4.2.0}"
spark - >"$FOLDER/seen" <<'EOF'
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from io import BytesIO

import avro.io
import avro.schema
import fastavro
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro

spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
DAY = date(2026, 1, 2)
MOMENT = datetime(2026, 1, 2, tzinfo=timezone.utc)


def record(type_, name, **more):
    field = {"name": "v", "type": {"type": type_, "logicalType": name, **more}}
    return {"type": "record", "name": "R", "fields": [field]}


def values(writer, reader, value):
    out = BytesIO()
    fastavro.schemaless_writer(out, writer, {"v": value})
    yield "fastavro", fastavro.schemaless_reader(BytesIO(out.getvalue()), writer, reader)["v"]
    schemas = [avro.schema.parse(json.dumps(each)) for each in (writer, reader)]
    decoder = avro.io.BinaryDecoder(BytesIO(out.getvalue()))
    yield "avro", avro.io.DatumReader(*schemas).read(decoder)["v"]
    options = {"mode": "FAILFAST", "avroSchema": json.dumps(reader)}
    frame = spark.createDataFrame([(bytearray(out.getvalue()),)], "b binary")
    yield "Spark", frame.select(from_avro("b", json.dumps(writer), options).v.cast("string")).first()[0]


decimals = [record("bytes", "decimal", precision=10, scale=scale) for scale in (4, 2)]
millis, micros = (record("long", f"timestamp-{unit}") for unit in ("millis", "micros"))
for what, writer, reader, value in (
    ("decimal(10,4) as decimal(10,2)", *decimals, Decimal("1.2345")),
    ("timestamp-millis as timestamp-micros", millis, micros, MOMENT),
    ("date as timestamp-millis", record("int", "date"), millis, DAY),
):
    print(f"{what}:", ", ".join(f"{name} {str(seen)[:10]}" for name, seen in values(writer, reader, value)))
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
