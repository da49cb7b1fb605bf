"""Refusals of a Kafka broker: it answers a batch of messages as a whole (KIP-126, KIP-467).

Of a refused batch nothing is appended. The client reports the refusal for each message, also for
those that the broker would accept alone.
"""

from __future__ import annotations

from .errors import Failed

#: As `CONFLUENT` in the domain's `exception_identity`.
_CODES = "confluent_kafka.KafkaError."
#: The client's own errors begin with this, and are of one message.
_OF_CLIENT = "_"
#: Except this one: the broker has named other messages of the batch.
_OF_ANOTHER = "_INVALID_DIFFERENT_RECORD"
_NO_KEY = "a topic with cleanup.policy=compact refuses a message without a key"
_TIMESTAMP = (
    "the topic's message.timestamp.after.max.ms and message.timestamp.before.max.ms limit the "
    "distance of a timestamp from the broker's clock"
)
_REASONS = {
    "INVALID_TIMESTAMP": _TIMESTAMP,
    "INVALID_RECORD": f"{_NO_KEY}; {_TIMESTAMP}",
    # The code that brokers before 2.4 send.
    "INVALID_MSG": _NO_KEY,
    "MSG_SIZE_TOO_LARGE": "the topic's max.message.bytes limits the size of a message",
}


def may_be_of_another(failed: Failed) -> bool:
    """Whether another message of the same batch may be the cause: sent alone, it may arrive.

    Retriable and fatal refusals are answered otherwise, and do not depend on the batch.
    """
    name = _name(failed)
    if failed.kind is not None or name is None:
        return False
    return name == _OF_ANOTHER or not name.startswith(_OF_CLIENT)


def reason(failed: Failed) -> str:
    """Return the settings of a topic that explain a refusal; empty if none is known."""
    return _REASONS.get(_name(failed) or "", "")


def _name(failed: Failed) -> str | None:
    """Return the name of the Kafka error; None: the exception is another."""
    name: str = failed.cause.names[0]
    return name.removeprefix(_CODES) if name.startswith(_CODES) else None
