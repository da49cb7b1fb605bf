from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from arrester.agents.config import AgentConfig, ExternalSetting, SettingSource
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.domain.error_policy.policy import StageKind
from arrester.domain.error_policy.setting_definitions import KEYS
from arrester.domain.errors import InvalidConfiguration
from arrester.domain.wire.signed_messages import key_text


def read(
    errors: dict[str, object] | None = None,
    *,
    application: str = "flights",
    spool: Path | str = "",
    redis_url: str = "",
) -> AgentConfig:
    environment = {"ARRESTER_SPOOL": str(spool), "REDIS_URL": redis_url}
    return AgentConfig.read(application, errors or {}, environment=environment)


def faults(errors: dict[str, object]) -> list[str]:
    with pytest.raises(InvalidConfiguration) as caught:
        read(errors)
    return [fault.name for fault in caught.value.faults]


def test_the_defaults_need_no_settings(tmp_path: Path) -> None:
    config = read(spool=tmp_path / "made" / "when missing")
    assert config.redis_url is None
    assert config.spool_folder.is_dir()
    assert config.errors.spool_bytes == 2**30
    assert config.errors.examples_limit == 100
    assert config.shutdown_timeout_seconds == 60
    assert config.errors.redact == ()
    assert config.errors.redact_builtin == ("password", "secret", "token", "key")
    assert not config.errors.dead_letters.enable
    assert config.handlers == {}


def test_values_may_be_text_as_in_a_properties_file() -> None:
    config = read(
        {
            "errors.log.enable": "TRUE",
            "errors.dlq.enable": "true",
            "errors.dlq.path": Path("/data/dlq"),
            "errors.redact": "pin, card.number",
            "error.shutdown.timeout.ms": "1500",
        }
    )
    assert config.errors.log.enable
    assert config.errors.dead_letters.path == "/data/dlq"
    # Names are added to the built-in ones, which a key of its own switches off.
    assert config.errors.redact == ("pin", "$.card.number")
    assert config.errors.redact_builtin == ("password", "secret", "token", "key")
    assert read({"errors.redact.builtin": "false"}).errors.redact_builtin == ()
    assert config.shutdown_timeout_seconds == 1.5


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no connection")


class Converter:
    def convert(self, row: dict[str, object]) -> bytes:
        return b""


@pytest.mark.parametrize(
    "path",
    ["no.such.module", "json.dumbs", "json.decoder.NaN", f"{__name__}.Broken"],
)
def test_a_dotted_path_is_loaded_when_the_configuration_is_read(path: str) -> None:
    given: dict[str, object] = {
        "errors.dlq.converter": path,
        "processing.exception.handler": path,
        "errors.retries.limit": "often",
    }
    dead_letters: dict[str, object] = {
        "errors.dlq.enable": True,
        "errors.dlq.topic.name": "letters",
    }
    with pytest.raises(InvalidConfiguration) as caught:
        read(given | dead_letters)
    assert {fault.name for fault in caught.value.faults} == set(given)
    assert f"errors.dlq.converter: {path!r} is not allowed" in str(caught.value)
    assert "convert(row)" in str(caught.value)


def test_the_error_states_why_a_dotted_path_cannot_be_loaded() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        read({"processing.exception.handler": "no.such.module"})
    assert "(ModuleNotFoundError: No module named 'no')" in str(caught.value)


@pytest.mark.parametrize("path", ["json.dumps", f"{__name__}.Converter"])
def test_a_converter_is_a_function_or_an_object(path: str) -> None:
    dead_letters: dict[str, object] = {
        "errors.dlq.enable": True,
        "errors.dlq.topic.name": "letters",
    }
    read(dead_letters | {"errors.dlq.converter": path})


def test_every_fault_is_in_one_message() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        AgentConfig.read(
            "Flights!",
            {
                "errors.dlq.enable": True,
                "errors.dlq.format": "",
                "errors.examples.limit": 0,
                "errors.tolerated": "all",
                "processing.exception.handler": "nowhere.Handler",
            },
            environment={"REDIS_URL": "http://me:secret@host", "ARRESTER_SPOOL": "/proc/nowhere"},
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 8
    for name, value in {
        "application": "'Flights!'",
        "REDIS_URL": "'http://…@host'",
        "ARRESTER_SPOOL": "'/proc/nowhere'",
        "errors.dlq.path": "None",
        "errors.dlq.format": "''",
        "errors.examples.limit": "0",
        "errors": "'errors.tolerated'",
        "processing.exception.handler": "'nowhere.Handler'",
    }.items():
        assert any(line.startswith(f"{name}: {value} is not allowed; allowed: ") for line in lines)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        read(redis_url="redis://:hunter2@host:port")
    assert "hunter2" not in str(caught.value)


def test_an_unknown_key_is_refused_with_the_nearest_keys() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        read({"errors.retrys.limit": 3})
    assert "the nearest are errors.retries.limit, " in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", KEYS)
def test_every_key_refuses_nonsense_by_its_name(name: str) -> None:
    nonsense = object()
    assert faults({name: nonsense, "errors.dlq.enable": nonsense}).count(name) == 1


@pytest.mark.parametrize("value", [True, 1.0, "1.5", "x", "", None, 0, 10_001])
def test_a_count_is_a_whole_number_within_its_bounds(value: object) -> None:
    assert faults({"errors.examples.limit": value}) == ["errors.examples.limit"]


@pytest.mark.parametrize(
    "value",
    ["arrester.agents.handlers.LogAndPause", LogAndPause, LogAndPause()],
    ids=["path", "class", "object"],
)
def test_a_handler_is_a_path_a_class_or_an_object(value: object) -> None:
    assert read({"processing.exception.handler": value}).handlers == {
        StageKind.PROCESS: LogAndPause()
    }


@pytest.mark.parametrize(
    "value",
    [
        "LogAndPause",
        "arrester.agents.handlers.Nobody",
        "arrester.agents.handlers.checked_answers",
        3,
    ],
)
def test_an_invalid_handler_is_refused(value: object) -> None:
    name = "deserialization.exception.handler"
    assert faults({name: value}) == [name]


@pytest.mark.parametrize("stage", ["deserialization", "processing", "production"])
def test_the_old_spelling_names_the_same_key_and_the_new_one_wins(stage: str) -> None:
    name = f"{stage}.exception.handler"
    old = f"default.{name}"
    assert list(read({old: LogAndPause}).handlers.values()) == [LogAndPause()]
    both: dict[str, object] = {name: LogAndContinue, old: LogAndPause}
    assert list(read(both).handlers.values()) == [LogAndContinue()]


def test_dead_letters_in_files_need_a_path_and_in_kafka_a_topic() -> None:
    enabled = {"errors.dlq.enable": True}
    assert faults({**enabled, "errors.dlq.format": "csv", "errors.dlq.options.sep": ";"}) == [
        "errors.dlq.path"
    ]
    assert faults({**enabled, "errors.dlq.format": "kafka", "errors.dlq.path": "/x"}) == [
        "errors.dlq.topic.name"
    ]
    read({**enabled, "errors.dlq.format": "jdbc", "errors.dlq.options.url": "x"})
    given: dict[str, object] = {
        "errors.deadletterqueue.topic.name": "letters",
        "errors.dlq.producer.acks": "all",
    }
    dead_letters = read(given).errors.dead_letters
    assert (dead_letters.enable, dead_letters.topic, dead_letters.producer) == (
        True,
        "letters",
        {"acks": "all"},
    )


def test_the_default_of_an_unavailable_setting_is_no_fault() -> None:
    config = read({"errors.failure.scope": "THREAD", "errors.dlq.topic.name": ""})
    assert not config.errors.dead_letters.enable


def source(place: str, **settings: str) -> SettingSource:
    """Return the settings of a place, with `__` for a point in a key."""
    names = {name.replace("__", "."): value for name, value in settings.items()}
    return {name: ExternalSetting(value, f"{place}{name}") for name, value in names.items()}


def merged(errors: dict[str, object], *sources: SettingSource, **environment: str) -> AgentConfig:
    return AgentConfig.read("flights", errors, environment=environment, sources=sources)


def test_the_program_precedes_sparks_configuration_and_that_the_file(tmp_path: Path) -> None:
    conf = source("spark.arrester.", errors__examples__limit="2", held__chunk__records="2")
    limits = {"errors__examples__limit": "3", "held__chunk__records": "3"}
    file = source("a.properties ", **limits, spool__bytes__limit="1048576")
    config = merged({"errors.examples.limit": 1}, conf, file)
    assert config.errors.examples_limit == 1
    assert config.errors.held_chunk_records == 2
    assert config.errors.spool_bytes == 1_048_576
    assert config.shown["held.chunk.records"] == "2"


def test_another_spelling_of_a_setting_is_the_same_setting() -> None:
    dead_letters: dict[str, object] = {"errors.deadletterqueue.topic.name": "of the program"}
    conf = source("spark.arrester.", errors__dlq__topic__name="of Spark")
    assert merged(dead_letters, conf).errors.dead_letters.topic == "of the program"
    two = source("", errors__dlq__topic__name="a", errors__deadletterqueue__topic__name="b")
    with pytest.raises(InvalidConfiguration):
        merged({}, two)


def test_the_sources_precede_the_environment(tmp_path: Path) -> None:
    variables = {"REDIS_URL": "redis://variable", "ARRESTER_SPOOL": str(tmp_path / "variable")}
    file = source("a.properties ", redis__url="redis://file")
    config = merged({}, file, **variables)
    assert config.redis_url == "redis://file"
    assert config.spool_folder == tmp_path / "variable"


def test_a_fault_names_the_place_that_it_was_read_from() -> None:
    conf = source("spark.arrester.", errors__tolerance="some", errors__tolerence="all")
    file = source("a.properties ", redis__url="host:6379", spool__folder="/proc/nowhere")
    with pytest.raises(InvalidConfiguration) as caught:
        merged({"errors.examples.limit": 0}, conf, file)
    unknown, value, *rest = sorted(str(caught.value).splitlines(), key=len, reverse=True)
    assert unknown.startswith(
        "errors: 'errors.tolerence' is not allowed (read from spark.arrester.errors.tolerence); "
        "allowed: did you mean errors.tolerance? the documented keys; "
    )
    assert "spool.folder" in unknown
    assert {value, *rest} == {
        "errors.tolerance: 'some' is not allowed (read from spark.arrester.errors.tolerance); "
        "allowed: none or all",
        "REDIS_URL: 'host:6379' is not allowed (read from a.properties redis.url); "
        "allowed: a URL that starts with redis://, rediss:// or unix://",
        "ARRESTER_SPOOL: '/proc/nowhere' is not allowed (read from a.properties spool.folder); "
        "allowed: a folder on a local disk that this process can write to",
        "errors.examples.limit: 0 is not allowed; allowed: a whole number from 1 to 10000",
    }


def test_a_key_of_the_agent_is_no_error_setting_of_the_program() -> None:
    assert faults({"redis.url": "redis://host"}) == ["errors"]


def test_masked_fields_are_encrypted_only_to_a_key_of_the_server() -> None:
    reveal: dict[str, object] = {"errors.redact.reveal": "true"}
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    assert merged(reveal, ARRESTER_SERVER_KEY=key_text(key)).errors.reveal
    # Without a key, and with points that no key has.
    pointless = key_text(bytes([1, *[0] * 31]))
    environments: tuple[dict[str, str], ...] = ({}, {"ARRESTER_SERVER_KEY": pointless})
    for keys in environments:
        with pytest.raises(InvalidConfiguration) as caught:
            merged(reveal, **keys)
        [fault] = caught.value.faults
        assert fault.name == "errors.redact.reveal"
        assert "unless ARRESTER_SERVER_KEY is the public key" in str(fault)


@pytest.mark.parametrize("keys", [1, 2])
def test_several_keys_of_the_server_may_be_pinned(keys: int) -> None:
    text = ", ".join(key_text(bytes([number] * 32)) for number in range(keys))
    config = merged({}, ARRESTER_SERVER_KEY=text)
    assert config.server_keys == tuple(bytes([number] * 32) for number in range(keys))


@pytest.mark.parametrize(
    "text",
    [
        *(",", "secret", "ed25519:", "ed25519:" + "A" * 42, "ed25519:" + "A" * 44),
        *("rsa:" + "A" * 43, "ed25519:" + "A" * 42 + "!", key_text(bytes(32)) + ",x"),
    ],
)
def test_an_invalid_key_of_the_server_is_refused(text: str) -> None:
    file = source("a.properties ", server__key=text)
    with pytest.raises(InvalidConfiguration) as caught:
        merged({}, file)
    assert str(caught.value).startswith("ARRESTER_SERVER_KEY: ")
    assert "(read from a.properties server.key)" in str(caught.value)
    assert "each ed25519: and 43 characters" in str(caught.value)
