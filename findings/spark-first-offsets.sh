#!/usr/bin/env bash
# Spark Structured Streaming: a query that was killed while it stored its first offsets never starts again.
#
# Versions: pyspark 4.3.0. 4.0.1 starts the query.
#
# Spark stores the offsets of a micro-batch in a temporary file, `offsets/.0.<uuid>.tmp`, and renames it. If
# the driver is killed before the rename of the very first one, the checkpoint has this file and no offset.
# Spark 4.3 looks whether the folder of a new query is empty, and refuses it because of the temporary file:
# STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY. Each restart fails alike, although the query has no state store
# and nothing was processed. Spark ignores such a file after any later micro-batch.
#
# What to do: delete the temporary file, or the whole checkpoint, which has nothing.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install pyspark==4.3.0

cat >"$FOLDER/expected" <<'EOF'
a new checkpoint: 1 micro-batch
only a temporary file: STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY
a temporary file after an offset: 2 micro-batches
EOF
spark - >"$FOLDER/seen" <<'EOF'
import re
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
Path("in").mkdir()
DRAFT = ".{}.0d4bd1fd-3b92-4c4c-9b7a-3a3c7e7a6b1f.tmp"


def begin(checkpoint):
    """Read all files that are new; return the number of micro-batches of this checkpoint."""
    number = len(list(Path("in").iterdir()))
    Path(f"in/{number}.txt").write_text("a line\n")
    source = spark.readStream.text("in")
    query = source.writeStream.format("noop").option("checkpointLocation", checkpoint)
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    except Exception as exc:
        return re.findall(r"\[([A-Z_]+)\]", str(exc))[-1]
    batches = len(list(Path(checkpoint, "commits").glob("[0-9]*")))
    return f"{batches} micro-batch{'es' if batches > 1 else ''}"


print("a new checkpoint:", begin("one"))
Path("two/offsets").mkdir(parents=True)
Path("two/offsets", DRAFT.format(0)).write_text("v1\n")
print("only a temporary file:", begin("two"))
Path("one/offsets", DRAFT.format(1)).write_text("v1\n")
print("a temporary file after an offset:", begin("one"))
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
