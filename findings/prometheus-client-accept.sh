#!/usr/bin/env bash
# prometheus_client: a metric has another name, and no type, if the scraper asks for the escaping `values`.
#
# Versions: prometheus-client 0.26.0.
#
# Prometheus 3 asks for the escaping that its setting `metric_name_escaping_scheme` names. All schemes but
# `dots` leave a name of letters and underscores as it is. In OpenMetrics, prometheus_client keeps such a name
# in the lines HELP and TYPE, and escapes it in the samples: with `values`, http_requests_total is stored as
# U__http__requests__total, without a type. In the text format of the same version it is right.
#
# It also ignores `q`: a format that the client refuses with q=0 is the answer if it is named first. And the
# answer claims any version that is asked for, such as 9.9.9, in the form of 1.0.0.
#
# What to do: choose the format by q among those that exist, and encode with the escaping `underscores`.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install prometheus-client==0.26.0

cat >"$FOLDER/expected" <<'EOF'
application/openmetrics-text;version=1.0.0;escaping=underscores
  application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores
  # TYPE http_requests counter
  http_requests_total 1.0
application/openmetrics-text;version=1.0.0;escaping=values
  application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=values
  # TYPE http_requests counter
  U__http__requests__total 1.0
text/plain;version=1.0.0;escaping=values
  text/plain; version=1.0.0; charset=utf-8; escaping=values
  # TYPE http_requests_total counter
  http_requests_total 1.0
application/openmetrics-text;q=0,text/plain;version=0.0.4
  application/openmetrics-text; version=1.0.0; charset=utf-8
  # TYPE http_requests counter
  http_requests_total 1.0
application/openmetrics-text;version=9.9.9
  application/openmetrics-text; version=9.9.9; charset=utf-8; escaping=underscores
  # TYPE http_requests counter
  http_requests_total 1.0
EOF
python - >"$FOLDER/seen" <<'EOF'
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder

registry = CollectorRegistry()
Counter("http_requests", "Requests.", registry=registry).inc()
OPENMETRICS = "application/openmetrics-text"
for accept in (
    f"{OPENMETRICS};version=1.0.0;escaping=underscores",
    f"{OPENMETRICS};version=1.0.0;escaping=values",
    "text/plain;version=1.0.0;escaping=values",
    f"{OPENMETRICS};q=0,text/plain;version=0.0.4",
    f"{OPENMETRICS};version=9.9.9",
):
    encode, content_type = choose_encoder(accept)
    print(accept)
    print(f"  {content_type}")
    for line in encode(registry).decode().splitlines():
        if "created" not in line and not line.startswith(("# HELP", "# EOF")):
            print(f"  {line}")
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
