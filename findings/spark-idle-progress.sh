#!/usr/bin/env bash
# Spark: the progress of a trigger without new input has the number of a micro-batch that never ran.
#
# Versions: pyspark 4.3.0; the same on 3.5.9.
#
# A StreamingQueryProgress is posted after the commit of its micro-batch, so its batchId looks like a proof of
# that commit. While a query idles, Spark posts a progress every ten seconds, too
# (spark.sql.streaming.noDataProgressEventInterval), and its batchId is that of the next micro-batch: nothing
# of it is planned or committed. The number comes again when the micro-batch runs. A program that stores "done
# up to batchId", or counts a micro-batch for each progress, is off by one, and after a crash it leaves out a
# micro-batch or counts it twice. numInputRows = 0 does not tell them apart: a micro-batch may have no rows.
#
# What to do: take a batchId as committed only if durationMs has addBatch, or look for its file in commits/.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install pyspark==4.3.0

cat >"$FOLDER/expected" <<'EOF'
batchId 0, addBatch True: 2 rows, committed True
batchId 1, addBatch False: 0 rows, committed False
batchId 1, addBatch True: 1 rows, committed True
batchId 2, addBatch False: 0 rows, committed False
EOF
spark - >"$FOLDER/seen" <<'EOF'
import time
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
source = Path("input")
source.mkdir()
(source / "a.txt").write_text("one\ntwo\n")
writer = spark.readStream.text("input").writeStream.format("noop")
writer = writer.option("checkpointLocation", "checkpoint")
query = writer.trigger(processingTime="200 milliseconds").start()


def show(batch, ran):
    """Wait for a progress with a number, of a micro-batch that ran or of an idle trigger."""
    found = []
    while not found:
        time.sleep(0.1)
        assert query.isActive, query.exception()
        numbered = [each for each in query.recentProgress if each["batchId"] == batch]
        found = [each for each in numbered if ("addBatch" in each["durationMs"]) is ran]
    committed = Path(f"checkpoint/commits/{batch}").exists()
    rows = found[0]["numInputRows"]
    print(f"batchId {batch}, addBatch {ran}: {rows} rows, committed {committed}")


show(0, True)
show(1, False)
(source / ".b").write_text("three\n")
(source / ".b").rename(source / "b.txt")
show(1, True)
show(2, False)
query.stop()
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
