# Sourced by each finding: a temporary folder with an environment of pinned packages.
#
#     install pyspark==4.3.0        makes the environment; `python` then runs in it
#     PYSPARK=3.5.9 findings/…     takes another Spark
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT

install() {
    local packages=("$@")
    [ -z "${PYSPARK:-}" ] || packages=("${packages[@]/#pyspark==*/pyspark==$PYSPARK}")
    python3 -m venv "$FOLDER/venv"
    "$FOLDER/venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
    echo "$(basename "$0" .sh): ${packages[*]}"
}

# Run Python with the program on standard input, in the temporary folder.
python() {
    (cd "$FOLDER" && exec "$FOLDER/venv/bin/python" "$@")
}

# The same with Spark: one task at a time, in ANSI mode also before 4.0. Its log is shown only if it ends in
# an error, since refused rows are part of a finding. SPARK_OPTIONS has further options of spark-submit.
spark() {
    JAVA_HOME=$(scripts/java)
    export JAVA_HOME PYSPARK_PYTHON="$FOLDER/venv/bin/python"
    export PYSPARK_SUBMIT_ARGS="--master local[1] --conf spark.ui.enabled=false \
        --conf spark.sql.ansi.enabled=true --conf spark.jars.ivy=$FOLDER/ivy \
        --driver-java-options -Djava.io.tmpdir=$FOLDER ${SPARK_OPTIONS:-} pyspark-shell"
    # Lines with '::' are those of Ivy, which resolves packages.
    python "$@" 2>"$FOLDER/log" | sed '/^:: /d' || {
        grep -v '^\s*at ' "$FOLDER/log" | tail -n 30 >&2
        return 1
    }
}

# Print a port of 127.0.0.1 that is free.
free_port() {
    python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Run a server until the end.
serve() {
    "$@" >"$FOLDER/server.log" 2>&1 &
    # shellcheck disable=SC2064  # this process, not a later one
    trap "kill $! && wait $! || true; rm -rf '$FOLDER'" EXIT
}

# Compare what was seen with the expected lines; any difference is a changed behaviour.
expect() {
    if ! diff --unified --label expected --label seen "$1" "$2"; then
        echo "The behaviour differs from what this file states." >&2
        exit 1
    fi
    cat "$2"
}
