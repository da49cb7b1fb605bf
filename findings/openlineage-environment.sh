#!/usr/bin/env bash
# openlineage-python: a client that reads OPENLINEAGE_URL writes it into the environment of its process for good.
#
# Versions: openlineage-python 1.54.0.
#
# OpenLineageClient() copies OPENLINEAGE_URL, OPENLINEAGE_ENDPOINT and OPENLINEAGE_API_KEY into variables
# OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__…, so that a composite transport can include them. They
# stay in os.environ, and are not written again if they exist. So after OPENLINEAGE_URL is changed or removed,
# a composite transport still sends to the first URL with the first key, and child processes inherit both.
#
# What to do: a process that creates clients for several receivers, such as a test suite, removes all
# variables that begin with OPENLINEAGE__ after each, or creates each client in a process of its own.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install openlineage-python==1.54.0

cat >"$FOLDER/expected" <<'EOF'
OPENLINEAGE_URL=http://127.0.0.1:9
  HttpTransport to http://127.0.0.1:9
  added …AUTH, …TYPE, …URL
OPENLINEAGE_URL=http://127.0.0.1:10
  HttpTransport to http://127.0.0.1:10
OPENLINEAGE_URL removed, a composite transport with other=console
  ConsoleTransport
  HttpTransport to http://127.0.0.1:9
EOF
python - >"$FOLDER/seen" <<'EOF'
import os

from openlineage.client import OpenLineageClient

for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
    del os.environ[name]


def show():
    transport = OpenLineageClient().transport
    for each in sorted(getattr(transport, "transports", [transport]), key=lambda each: type(each).__name__):
        print(f"  {type(each).__name__}" + (f" to {each.url}" if hasattr(each, "url") else ""))


print("OPENLINEAGE_URL=http://127.0.0.1:9")
os.environ |= {"OPENLINEAGE_URL": "http://127.0.0.1:9", "OPENLINEAGE_API_KEY": "key"}
before = set(os.environ)
show()
print("  added", ", ".join(sorted("…" + name.rpartition("__")[2] for name in set(os.environ) - before)))

print("OPENLINEAGE_URL=http://127.0.0.1:10")
os.environ["OPENLINEAGE_URL"] = "http://127.0.0.1:10"
show()

print("OPENLINEAGE_URL removed, a composite transport with other=console")
del os.environ["OPENLINEAGE_URL"], os.environ["OPENLINEAGE_API_KEY"]
os.environ["OPENLINEAGE__TRANSPORT__TYPE"] = "composite"
os.environ["OPENLINEAGE__TRANSPORT__TRANSPORTS__OTHER__TYPE"] = "console"
show()
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
