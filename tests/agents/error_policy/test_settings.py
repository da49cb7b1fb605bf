from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.classify import Kind, describe
from arrester.domain.error_policy.policy import Response, Scope, StageKind
from arrester.domain.error_policy.retry import RetryPolicy
from arrester.domain.error_policy.setting_definitions import ALIASES, KEYS
from arrester.domain.error_policy.tolerance import Tolerance, Window
from arrester.domain.errors import InvalidConfiguration
from tests.services import REPOSITORY

DOCS = REPOSITORY / "docs" / "reference" / "configuration.md"
ON: dict[str, object] = {"errors.dlq.enable": True}


class Handler:
    """A handler by its shape."""

    def handle(self, *arguments: object) -> Response:
        return Response.FAIL


def read(**given: object) -> ErrorSettings:
    return ErrorSettings.read({name.replace("_", "."): value for name, value in given.items()})


def faults(given: dict[str, object]) -> list[str]:
    with pytest.raises(InvalidConfiguration) as caught:
        ErrorSettings.read(given)
    assert len(str(caught.value).splitlines()) == len(caught.value.faults)
    return [str(fault) for fault in caught.value.faults]


def test_settings_have_the_documented_defaults() -> None:
    settings = ErrorSettings.read({})
    assert settings.retry == RetryPolicy(limit=0, timeout_ms=-1, delay_max_ms=60_000)
    assert settings.tolerance == Tolerance(limit=None, rate_limit=None, window=Window.MINUTE)
    assert not settings.policy(StageKind.PROCESS).handled
    assert settings.scope is Scope.THREAD
    dead_letters = settings.dead_letters
    assert (dead_letters.enable, dead_letters.partitions, dead_letters.replication_factor) == (
        False,
        5,
        3,
    )
    assert settings.shutdown_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"errors.retries.limit": 3}, (3, -1)),
        ({"errors.retry.timeout": 500}, (-1, 500)),
        ({"errors.retry.timeout": -7}, (-1, -1)),
        ({"errors.retries.limit": "3", "errors.retry.timeout": "500"}, (3, 500)),
    ],
)
def test_either_budget_bounds_the_retries(
    given: dict[str, object], expected: tuple[int, int]
) -> None:
    retry = ErrorSettings.read(given).retry
    assert (retry.limit, retry.timeout_ms) == expected


def test_both_names_of_a_setting_are_equivalent() -> None:
    drafted = {
        "errors.retries.delay.max.ms": 7,
        "errors.tolerance.limit": -1,
        "errors.dlq.enable": True,
        "errors.dlq.topic.name": "bad",
        "errors.dlq.topic.replication.factor": 1,
    }
    shipped = {
        "errors.retry.delay.max.ms": "7",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "bad",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    settings = [ErrorSettings.read(given) for given in (drafted, shipped, drafted | shipped)]
    assert settings[0] == settings[1] == settings[2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"errors.tolerance.limit": 5}, {"errors.tolerance": "all"}),
        ({"errors.tolerance.limit": -1}, {"errors.tolerance": "none"}),
        ({"errors.tolerance.rate.limit": 5}, {"errors.tolerance": "all"}),
        ({"errors.retries.delay.max.ms": 5}, {"errors.retry.delay.max.ms": 6}),
        ({"errors.dlq.topic.name": "a"}, {"errors.deadletterqueue.topic.name": "b"}),
        ({"errors.dlq.enable": False}, {"errors.deadletterqueue.topic.name": "b"}),
        (
            {"errors.dlq.topic.replication.factor": 1},
            {"errors.deadletterqueue.topic.replication.factor": 2},
        ),
    ],
)
def test_different_values_under_two_names_are_a_fault_that_names_both(
    one: dict[str, object], other: dict[str, object]
) -> None:
    (fault,) = faults(one | other)
    assert fault.startswith(f"{next(iter(one))}: ")
    assert next(iter(other)) in fault


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("errors.retries.limit", -2),
        ("errors.retries.limit", True),
        ("errors.retries.limit", 1.5),
        ("errors.retries.delay.max.ms", 0),
        ("errors.retry.delay.max.ms", "0"),
        ("errors.retry.timeout", "soon"),
        ("errors.tolerance", "some"),
        ("errors.tolerance.limit", -2),
        ("errors.tolerance.rate.limit", "-2"),
        ("errors.tolerance.rate.duration", "week"),
        ("errors.dlq.topic.partitions", 0),
        ("errors.dlq.topic.replication.factor", 0),
        ("errors.failure.scope", "record"),
        ("errors.log.enable", "yes"),
        ("errors.fatal.classes", "not a name"),
        ("production.exception.handler", "NoDots"),
    ],
)
def test_a_value_outside_its_domain_is_named_with_key_value_and_domain(
    name: str, value: object
) -> None:
    (fault,) = faults({name: value})
    assert fault.startswith(f"{name}: {value!r} is not allowed; allowed: ")


def test_a_misspelt_key_is_answered_with_the_nearest_one() -> None:
    (fault,) = faults({"errors.tolerence.limit": 3})
    assert "allowed: did you mean errors.tolerance.limit? the documented keys; " in fault
    assert fault.count("errors.") == 5
    (fault,) = faults({"retention.days": 3})
    assert "did you mean" not in fault


def test_every_fault_is_in_one_message() -> None:
    given: dict[str, object] = {
        "errors.retries.limit": -2,
        "errors.tolerance": "all",
        "errors.tolerance.limit": 3,
        "errors.dlq.enable": True,
        "errors.no.such.key": 1,
    }
    found = [fault.partition(":")[0] for fault in faults(given)]
    assert sorted(found) == [
        "errors",
        "errors.dlq.path",
        "errors.retries.limit",
        "errors.tolerance.limit",
    ]


@pytest.mark.parametrize("name", [*KEYS, *ALIASES])
def test_every_key_refuses_invalid_values_under_each_name(name: str) -> None:
    assert [fault.partition(":")[0] for fault in faults({name: object()})] == [name]


@pytest.mark.parametrize("name", [*KEYS, *ALIASES])
def test_every_key_is_documented(name: str) -> None:
    assert f"`{name}`" in DOCS.read_text()


@given(
    st.dictionaries(
        st.sampled_from([*KEYS, *ALIASES]), st.text("aelnotu.,-019", max_size=6) | st.integers()
    )
)
def test_any_configuration_is_read_or_refused(given: dict[str, object]) -> None:
    try:
        assert isinstance(ErrorSettings.read(given), ErrorSettings)
    except InvalidConfiguration as refused:
        assert refused.faults


def test_dead_letters_need_a_destination() -> None:
    (fault,) = faults({"errors.dlq.enable": "true"})
    assert fault.startswith("errors.dlq.path: None is not allowed")
    assert read(errors_dlq_enable=True, errors_dlq_path=Path("/data")).dead_letters.path == "/data"
    jdbc = {"errors.dlq.enable": True, "errors.dlq.format": "jdbc", "errors.dlq.options.url": "u"}
    assert ErrorSettings.read(jdbc).dead_letters.options == {"url": "u"}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"errors.dlq.path": "/x"}, "errors.dlq.enable"),
        ({"errors.dlq.topic.name": "t"}, "errors.dlq.enable"),
        ({"errors.dlq.producer.acks": "all"}, "errors.dlq.enable"),
        ({"errors.dlq.options.sep": ";"}, "errors.dlq.enable"),
        (ON | {"errors.dlq.path": "/x", "errors.dlq.topic.name": "t"}, "errors.dlq.path"),
        (ON | {"errors.dlq.format": "json", "errors.dlq.topic.name": "t"}, "errors.dlq.format"),
        (
            ON | {"errors.dlq.options.sep": ";", "errors.deadletterqueue.topic.name": "t"},
            "errors.dlq.options.sep",
        ),
        (ON | {"errors.dlq.path": "/x", "errors.dlq.converter": "a.b"}, "errors.dlq.converter"),
        (
            ON | {"errors.dlq.path": "/x", "errors.dlq.producer.acks": "1"},
            "errors.dlq.producer.acks",
        ),
        (ON | {"errors.dlq.path": "/x", "errors.dlq.format": "TEXT"}, "errors.dlq.format"),
        ({"errors.tolerance.rate.duration": "day"}, "errors.tolerance.rate.duration"),
    ],
)
def test_a_setting_that_would_be_ignored_is_a_fault(given: dict[str, object], fault: str) -> None:
    assert [each.partition(":")[0] for each in faults(given)] == [fault]


def test_dead_letters_can_be_disabled_with_their_settings() -> None:
    off = {"errors.dlq.enable": False, "errors.dlq.path": "/x", "errors.dlq.producer.acks": "1"}
    assert not ErrorSettings.read(off).dead_letters.enable
    topic = {"errors.dlq.format": "kafka", "errors.dlq.topic.name": "t"}
    assert ErrorSettings.read(ON | topic).dead_letters.topic == "t"


def test_handlers_are_not_imported_and_the_current_name_wins() -> None:
    current, old = Handler(), Handler()
    given = {"processing.exception.handler": current, "default.processing.exception.handler": old}
    settings = ErrorSettings.read(given)
    assert settings.handlers == {StageKind.PROCESS: current}
    assert settings.policy(StageKind.PROCESS).handled
    assert not settings.policy(StageKind.PRODUCE).handled
    found = ErrorSettings.read({"default.production.exception.handler": "my.module.Handler"})
    assert found.handlers == {StageKind.PRODUCE: "my.module.Handler"}


def test_users_extend_the_table_by_configuration() -> None:
    settings = ErrorSettings.read(
        {"errors.retriable.classes": "builtins.ValueError, my.Busy", "errors.fatal.classes": ["X"]}
    )
    assert settings.table.classify(describe(ValueError())).kind is Kind.RETRIABLE
    assert settings.table.classifications["X"].kind is Kind.FATAL


def test_every_configured_stage_has_a_handler_key() -> None:
    handled = {stage for stage in StageKind if stage is not StageKind.SOURCE}
    keys = [name for name in KEYS if name.endswith(".exception.handler")]
    assert set(ErrorSettings.read(dict.fromkeys(keys, Handler())).handlers) == handled
