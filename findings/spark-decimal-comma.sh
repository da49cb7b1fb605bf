#!/usr/bin/env bash
# Spark: a decimal comma multiplies a DECIMAL by a power of ten, also in mode FAILFAST.
#
# Versions: pyspark 4.3.0; the same on 3.5.9 for CSV and JSON; it has no from_xml.
#
# The readers of CSV, JSON and XML remove each comma of a DECIMAL before they parse it, because their
# default locale is en-US. So '12,50' is 1250.00, and in '1.234,50' the rest is a fraction that is rounded:
# 1.23. The same text as DOUBLE is a malformed record for CSV and JSON; XML makes it 1250.0. CAST refuses
# both. A file of a European shop, with ';' as its separator, loads without an error, each price times 100.
#
# What to do: set the reader's option locale (de-DE reads 12.50), or read strings and CAST them.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install pyspark==4.3.0

cat >"$FOLDER/expected" <<'EOF'
csv decimal 12,50: 1250.00
csv decimal 1.234,50: 1.23
csv double 12,50: refused
json decimal 12,50: 1250.00
json decimal 1.234,50: 1.23
json double 12,50: refused
xml decimal 12,50: 1250.00
xml double 12,50: 1250.0
cast decimal 12,50: refused
csv decimal 12,50 with locale de-DE: 12.50
EOF
spark - >"$FOLDER/seen" <<'EOF'
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
TEXTS = {"csv": "{}", "json": '{{"p":"{}"}}', "xml": "<r><p>{}</p></r>"}


def show(what, expression):
    try:
        print(f"{what}: {spark.sql(f'SELECT {expression}').first()[0]}")
    except Exception:
        print(f"{what}: refused")


def read(form, type_, text, *options):
    call = ", ".join(repr(each) for each in ("mode", "FAILFAST", "sep", ";", *options))
    source = TEXTS[form].format(text)
    return f"from_{form}('{source}', 'p {type_}', map({call})).p"


for form in TEXTS:
    for type_, text in (("decimal", "12,50"), ("decimal", "1.234,50"), ("double", "12,50")):
        if (form, text) != ("xml", "1.234,50"):
            sql_type = "decimal(10,2)" if type_ == "decimal" else type_
            show(f"{form} {type_} {text}", read(form, sql_type, text))
show("cast decimal 12,50", "CAST('12,50' AS decimal(10,2))")
german = read("csv", "decimal(10,2)", "12,50", "locale", "de-DE")
show("csv decimal 12,50 with locale de-DE", german)
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
