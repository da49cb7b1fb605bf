"""Write docs/reference/configuration.md from the settings of the agent."""

from __future__ import annotations

from pathlib import Path

from arrester.agents.release import RULE
from arrester.domain.error_policy.setting_definitions import KEYS
from arrester.domain.error_policy.setting_types import Key
from arrester.domain.wire.signed_messages import KEY_RULE, SERVER_KEY

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"
HEAD = """\
# Configuration of an agent

All settings of an agent. This page is generated: `python -m scripts.configuration_reference`.

## Where settings are read

If a setting is given in several places, the first one of this list counts:

1. `Agent(errors={"errors.tolerance": "all"})`, in the program.
2. Spark's configuration: `spark-submit --conf spark.arrester.errors.tolerance=all`,
   `spark-defaults.conf`, or `.config(…)` before the session starts. The name is `spark.arrester.`
   and the key.
3. A properties file: `--conf spark.arrester.config.file=arrester.properties`, a path on the driver.
   The syntax is Kafka Connect's (`errors.tolerance=all`), in UTF-8.
4. Environment variables, for the last three keys of the table.

An unknown key or an invalid value is refused at the start, all faults in one message. Each names
the key, the value, what is allowed and the place, unless that is `errors=`. Spark's web UI shows
Spark's configuration: write values with passwords into the file.

## Keys

| key | default | allowed | meaning |
|---|---|---|---|
"""
#: The keys without a parser of their own: name, default, allowed values, meaning.
OTHERS = (
    ("`errors.dlq.options.*`", "none", "any", "Options of the Spark sink for dead letters."),
    (
        *("`errors.dlq.producer.*`", "none", "any"),
        "Configuration of the Kafka producer for dead letters.",
    ),
    (
        *("`redis.url`<br>or the variable `REDIS_URL`", "none"),
        "a URL that starts with redis://, rediss:// or unix://",
        "The server's Redis. Not in `errors=`.",
    ),
    (
        *(f"`server.key`<br>or the variable `{SERVER_KEY}`", "none", KEY_RULE),
        "Accept only what this server signed. Not in `errors=`.",
    ),
    (
        "`spool.folder`<br>or the variable `ARRESTER_SPOOL`",
        *("`~/.local/state/arrester/spool`", "a folder on a local disk"),
        "Folder for unconfirmed events. Not in `errors=`.",
    ),
    (
        *("`application.version`<br>or the variable `ARRESTER_VERSION`", "none", RULE),
        "Version of the application, unless `Agent(version=…)` gives it. Not in `errors=`.",
    ),
    (
        *("`spark.metrics.enable`<br>or the variable `ARRESTER_SPARK_METRICS`", "false"),
        "true or false",
        "Set the [metrics of the agent](metrics.md#the-agent-in-spark) in Spark's metrics system."
        " Not in `errors=`.",
    ),
)
TAIL = """\

The standard variables of OpenTelemetry, `OTEL_…`, are in
[trace failures](../how-to/trace-failures.md), those of OpenLineage, `OPENLINEAGE_…`, in
[report lineage](../how-to/report-lineage.md).

`errors.dlq.enable` requires one place: a path, a topic, or options of the sink.
`errors.deadletterqueue.topic.name` enables dead letters by itself, as in Kafka Connect.
A setting without effect is refused, and so are two spellings of one key with different values.
"""


def page() -> str:
    """Return the text of the page."""
    rest = "".join(f"| {' | '.join(each)} |\n" for each in OTHERS)
    return HEAD + "".join(map(_row, KEYS.values())) + rest + TAIL


def _row(key: Key[object]) -> str:
    names = "<br>or ".join(
        f"`{each}`" for each in (key.name, key.connect_name, key.former_name) if each
    )
    # Brackets after brackets would be a link.
    allowed = key.allowed.replace("[", "\\[")
    return f"| {names} | {_shown(key.default)} | {allowed} | {key.meaning} |\n"


def _shown(default: object) -> str:
    match default:
        case None | ():
            return "none"
        case bool():
            return str(default).lower()
        case tuple():
            return ", ".join(map(str, default))
    return str(default)


if __name__ == "__main__":
    PAGE.write_text(page())
