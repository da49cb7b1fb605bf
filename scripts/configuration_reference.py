"""Write docs/reference/configuration.md from the settings of the agent."""

from __future__ import annotations

from pathlib import Path

from arrester.controlplane.domain.error_policy.setting_definitions import KEYS
from arrester.controlplane.domain.error_policy.setting_types import Key

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"
HEAD = """\
# Configuration of an agent

All keys of `Agent(errors=…)`. This page is generated: `python -m scripts.configuration_reference`.
An invalid or unknown key is refused at the start, all faults in one message.

| key | default | allowed | meaning |
|---|---|---|---|
"""
TAIL = """\
| `errors.dlq.options.*` | none | any | Options of the Spark sink for dead letters. |
| `errors.dlq.producer.*` | none | any | Configuration of the Kafka producer for dead letters. |

`errors.dlq.enable` requires one place: a path, a topic, or options of the sink.
`errors.deadletterqueue.topic.name` enables dead letters by itself, as in Kafka Connect.
A setting without effect is refused, and so are two spellings of one key with different values.
"""


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(map(_row, KEYS.values())) + TAIL


def _row(key: Key[object]) -> str:
    names = "<br>or ".join(f"`{each}`" for each in (key.name, key.shipped, key.old) if each)
    return f"| {names} | {_shown(key.default)} | {key.allowed} | {key.meaning} |\n"


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
