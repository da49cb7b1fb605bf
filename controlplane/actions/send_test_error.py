"""A test error, sent as agents send events, to test the whole path."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from arrester.controlplane import access
from arrester.controlplane.actions.transaction import check_text, new_id
from arrester.controlplane.redis import redis_client
from arrester.domain.errors import RedisUnavailable
from arrester.domain.events import Body, Event, Failure, FinalResponse, RecordFailed, Run
from arrester.domain.identity import redis_keys
from arrester.domain.identity.fingerprint import fingerprint
from arrester.domain.identity.names import check_name
from arrester.domain.wire import codec

APPLICATION, PIPELINE, CHECKPOINT = "test", "test-error", "none"
#: In place of an agent's spool.
_SPOOL = UUID("018f2f5e-3f6b-7c51-9d3a-6c1f0b5a4e24")
_STAGE, _CLASS = "process:test", "arrester.TestError"
_MESSAGE = "This is a test error, sent from the dashboard; nothing is wrong."


def send_test_error(*, actor: str, application: str = APPLICATION) -> UUID:
    """Add one clearly marked failure to an application's stream; return its batch.

    Raises RedisUnavailable: unlike an agent's, it is not spooled.
    """
    check_name("application", application)
    check_text(actor=actor)
    access.require(application)
    now = datetime.now(UTC)
    batch = new_id()
    packed = codec.encode_batch([_event(actor, now)])
    fields = {"batch": str(batch), "spool": str(_SPOOL), "events": packed}
    try:
        redis_client.client().xadd(redis_keys.events(application), fields)  # type: ignore[arg-type]  # redis-py's dict is invariant
    except redis_client.TimeoutError as exc:
        unknown = "Redis does not answer: it is unknown whether the test error will arrive"
        raise RedisUnavailable(unknown) from exc
    except redis_client.RedisError as exc:
        raise RedisUnavailable("Redis does not answer: no event can arrive now") from exc
    return batch


def _event(actor: str, now: datetime) -> Event:
    mark = fingerprint(
        stage=_STAGE, exception_class=_CLASS, condition=None, frame=None, message=_MESSAGE
    )
    failure = Failure(stage=_STAGE, exception_class=_CLASS, message=_MESSAGE, fingerprint=mark)
    data = RecordFailed(
        task="test",
        position=int(now.timestamp() * 1000),
        failure=failure,
        response=FinalResponse.CONTINUE,
    )
    body = Body(record={"test": True, "sent_by": actor}, stack=f"{_CLASS}: {_MESSAGE}")
    run = Run(pipeline=PIPELINE, checkpoint=CHECKPOINT, epoch=1)
    return Event(occurred_at=now, data=data, run=run, body=body)
