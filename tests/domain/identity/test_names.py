"""Names, identities and ids: unique per thing, and stable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import RFC_4122

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.domain.errors import InvalidValue
from arrester.domain.identity import redis_keys, uuids
from arrester.domain.identity.fingerprint import fingerprint, normalised
from arrester.domain.identity.names import (
    KEY_MAX_BYTES,
    TaskId,
    bounded_key,
    check_name,
)
from tests.histories import INSTANCE, JFK, NOON

AWKWARD = ["/", "..", "a/../b", "🛫", "", "\0", " ", "%2e", "_", "x" * 10_240]
task_ids = st.builds(
    TaskId,
    application=st.text(max_size=3),
    pipeline=st.text(max_size=3),
    checkpoint=st.text(max_size=3),
    key=st.none() | st.text(max_size=3),
)


@pytest.mark.parametrize("name", ["flights", "0", "a.b-c", "a" * 63])
def test_valid_names_are_accepted(name: str) -> None:
    assert check_name("application", name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a_b", "a/b", "a" * 64, "ä", "a\n"])
def test_an_invalid_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_name("pipeline", name)
    assert (refused.value.name, refused.value.value) == ("pipeline", name)
    assert "1 to 63" in str(refused.value)


@given(task_ids, task_ids)
def test_two_tasks_never_share_a_digest(one: TaskId, other: TaskId) -> None:
    assert (one == other) == (one.digest == other.digest)


@pytest.mark.parametrize("key", [*AWKWARD, None])
def test_any_key_has_a_digest_that_fits_a_url(key: str | None) -> None:
    task = TaskId(application="a", pipeline="p", checkpoint="c", key=key)
    assert len(task.digest) == 32
    assert int(task.digest, 16) >= 0


def test_the_global_task_differs_from_the_empty_key() -> None:
    nothing = TaskId(application="a", pipeline="p", checkpoint="c")
    empty = TaskId(application="a", pipeline="p", checkpoint="c", key="")
    assert nothing.digest != empty.digest
    assert (nothing.printed, empty.printed, JFK.printed) == ("p (no key)", "p_", "delays_JFK")


def test_a_digest_never_changes() -> None:
    assert JFK.digest == "b0ea044b54570557b3cc1d1cb6a585eb"


@given(st.text(min_size=300, max_size=2000), st.text(min_size=300, max_size=2000))
def test_long_keys_are_bounded_and_stay_different(one: str, other: str) -> None:
    assert len(bounded_key(one).encode()) <= KEY_MAX_BYTES
    assert (one == other) == (bounded_key(one) == bounded_key(other))


def test_a_key_up_to_the_limit_is_unchanged() -> None:
    assert bounded_key("k" * 512) == "k" * 512
    assert bounded_key("ü" * 257).startswith("ü" * 64 + "…")


# ── ids ──────────────────────────────────────────────────────────────────────────────────────


def commit(at: datetime = NOON, **other: object) -> object:
    values: dict[str, object] = {
        "application": "flights", "pipeline": "delays", "checkpoint": "cp-1", "entry": 1, "part": 0,
    }  # fmt: skip
    return uuids.commit_id(at, **(values | other))  # type: ignore[arg-type]  # each by its name


def test_a_commit_has_the_same_id_on_every_host() -> None:
    assert commit() == commit()
    assert str(commit()) == "01a1f8d3-ea00-806a-9864-d571923c2ce8"


@pytest.mark.parametrize(
    "other",
    [{"application": "x"}, {"pipeline": "x"}, {"checkpoint": "x"}, {"entry": 2}, {"part": 1},
     {"at": NOON + timedelta(milliseconds=1)}],
)  # fmt: skip
def test_two_commits_never_share_an_id(other: dict[str, object]) -> None:
    assert commit(**other) != commit()  # type: ignore[arg-type]  # each by its name


@given(st.datetimes(datetime(1970, 1, 2), datetime(3000, 1, 1), timezones=st.just(UTC)))
def test_ids_begin_with_their_time_and_have_a_version(at: datetime) -> None:
    random = uuids.uuid7(at)
    named = uuids.commit_id(at, application="a", pipeline="p", checkpoint="c", entry=1)
    assert (random.version, named.version) == (7, 8)
    assert random.variant == named.variant == RFC_4122
    assert uuids.milliseconds(random) == uuids.milliseconds(named) == int(at.timestamp() * 1000)
    assert uuids.uuid7(at) != random


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────


def cause(
    stage: str = "deserialize",
    *,
    exception_class: str = "ValueError",
    condition: str | None = None,
    frame: str | None = None,
    message: str = "bad value 'NA' in row 17",
    inner_class: str | None = None,
    inner_condition: str | None = None,
    field: str | None = None,
) -> str:
    return fingerprint(
        stage=stage,
        exception_class=exception_class,
        condition=condition,
        frame=frame,
        message=message,
        inner_class=inner_class,
        inner_condition=inner_condition,
        field=field,
    )


def test_values_of_a_record_do_not_change_the_fingerprint() -> None:
    assert cause() == cause(message="bad value  'x y' in row 4.5")
    assert normalised("id 0193476e-0000-7000-8000-000000000001 at 0x7f3a: 12") == (
        "id <uuid> at <hex>: <number>"
    )
    assert cause().startswith("1-")


def test_another_cause_has_another_fingerprint() -> None:
    causes = {
        cause(),
        cause("process:x"),
        cause(exception_class="KeyError"),
        cause(condition="CAST_INVALID_INPUT"),
        cause(frame="flights.py:12 in validate"),
        cause(message="no value"),
    }
    assert len(causes) == 6


def test_a_condition_or_frame_replaces_the_message_in_the_fingerprint() -> None:
    assert cause(condition="C", message="one") == cause(condition="C", message="other")
    assert cause(frame="f:1", message="one") == cause(frame="f:1", message="other")


def test_the_innermost_cause_and_the_field_divide_a_group() -> None:
    malformed = partial(cause, condition="MALFORMED", message="some record")
    date = {"inner_class": "java.time.DateTimeParseException"}
    causes = {
        malformed(),
        malformed(**date),
        malformed(inner_class="java.Json"),
        malformed(inner_class="java.Json", inner_condition="CANNOT"),
        malformed(inner_class="java.Json", inner_condition="CANNOT", field="amount"),
        malformed(field="amount"),
    }
    assert len(causes) == 6
    assert malformed(**date) == malformed(**date, message="another record")
    # As in a group: the condition identifies it, not the class.
    assert malformed(inner_class="a", inner_condition="C") == malformed(
        inner_class="b", inner_condition="C"
    )


def test_a_failure_without_a_cause_has_the_fingerprint_of_version_1() -> None:
    # A fingerprint that agents before version 2 sent.
    assert cause(condition="CAST_INVALID_INPUT") == "1-5eb886061a5aa66a"
    assert cause(condition="CAST_INVALID_INPUT", field="a").startswith("2-")


def test_redis_keys_begin_with_their_application() -> None:
    made = [
        redis_keys.events("flights"), redis_keys.commands("flights"), redis_keys.state("flights"),
        redis_keys.pending_fold("flights"), redis_keys.heartbeat("flights", INSTANCE),
        redis_keys.confirmed("flights", INSTANCE),
    ]  # fmt: skip
    assert all(key.startswith("arrester:flights:") for key in made)
    assert len(set(made)) == len(made)
    assert redis_keys.application_of(redis_keys.events("flights")) == "flights"
