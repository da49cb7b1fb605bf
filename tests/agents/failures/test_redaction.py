"""Redaction: deny by default, and no values of redacted fields in texts about a record."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.config import without_secrets
from arrester.agents.definition.builder import define
from arrester.agents.failures.native_diagnosis import Received
from arrester.agents.failures.payload import Redaction, UnmatchedRules
from arrester.agents.handlers import ErrorContext, LogAndContinue, Record, RecordError
from arrester.agents.worker.redactor import PATH_CHARACTERS, PATHS, RedactRow
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidConfiguration, InvalidValue
from arrester.domain.events import RecordFailed, ThreadDied
from tests.agents.pipeline_bench import Bench, levels_of, sink_to
from tests.patience import wait_until

SECRET = "4711-0815"

names = st.sampled_from(["flight", "card", "token", "who", "Name"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
rows = st.dictionaries(names, values | values.map(json.dumps), max_size=4)


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return all leaves of a value with their paths, also those inside texts that are JSON."""
    if isinstance(value, dict):
        return [leaf for name, item in value.items() for leaf in leaves(item, f"{path}.{name}")]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item, path)]
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return leaves(json.loads(value), path)
        except ValueError:
            pass
    return [(path.lower(), value)]


@given(rows)
def test_denied_by_default_unlisted_fields_stay_on_the_driver(row: dict[str, Any]) -> None:
    body = Redaction(drop=("token",), only=("flight", "$.who.name")).body(row, stack=None)
    for path, _ in leaves(body.record):
        parts = path.strip(".").split(".")
        assert "token" not in parts
        assert "flight" in parts or parts[:2] == ["who", "name"]


@given(rows)
def test_without_a_list_only_named_fields_are_dropped(row: dict[str, Any]) -> None:
    body = Redaction(drop=("token",)).body(row, stack=None)
    kept = [leaf for leaf in leaves(row) if "token" not in leaf[0].split(".")]
    assert leaves(body.record) == kept


def test_denied_by_default_listed_names_and_paths_leave_the_driver() -> None:
    row = {
        "flight": "LH 400",
        "value": json.dumps({"delay": 7, "passenger": {"name": "ana", "seat": "1A"}}),
        "plain": "text",
        "many": [{"flight": 1, "other": 2}],
    }
    redaction = Redaction(drop=("seat",), only=("flight", "$.value.passenger"))
    body = redaction.body(row, stack=None)

    assert body.record == {
        "flight": "LH 400",
        "value": json.dumps({"passenger": {"name": "ana"}}),
        "many": [{"flight": 1}],
    }
    assert body.redacted == ("value", "plain", "many")


@given(st.dictionaries(st.text(min_size=9), st.integers(), min_size=1))
def test_denied_by_default_names_in_maps_are_redacted(data: dict[str, int]) -> None:
    row = {"flight": "LH 400", "map": data, "text": json.dumps(data), "many": [data]}
    body = Redaction(drop=("secret",), only=("flight",)).body(row, stack=None)
    assert (body.record, body.redacted) == ({"flight": "LH 400"}, ("map", "text", "many"))


def test_denied_by_default_keys_of_maps_above_an_allowed_field_are_hidden() -> None:
    row = {
        "by_person": {"ana 1977": {"flight": "LH 400"}, "ben 1980": {"flight": "LH 401"}},
        "seats": {"nested": {"flight": "LH 402"}},
        "text": json.dumps({"ana 1977": {"flight": "LH 403"}, "trip": {"at": 7, "who": "ana"}}),
    }
    redaction = Redaction(only=("flight", "$.text.trip.at"), fields=("nested", "flight"))
    assert redaction.body(row, stack=None).record == {
        "by_person": {"…[name 1]": {"flight": "LH 400"}, "…[name 2]": {"flight": "LH 401"}},
        "seats": {"nested": {"flight": "LH 402"}},
        "text": json.dumps(
            {"…[name 1]": {"flight": "LH 403"}, "trip": {"at": 7}}, ensure_ascii=False
        ),
    }
    # A listed field is shown with everything inside it.
    record = Redaction(only=("by_person",)).body(row, stack=None).record
    assert record == {"by_person": row["by_person"]}


@given(st.dictionaries(st.text(min_size=9), st.fixed_dictionaries({"flight": st.integers()})))
def test_denied_by_default_names_that_are_data_never_leave(data: dict[str, Any]) -> None:
    row = {"map": data, "text": json.dumps(data), "many": [data]}
    text = repr(Redaction(only=("flight",)).body(row, stack=None).record)
    assert not any(repr(name)[1:-1] in text for name in data if "name" not in name)


@pytest.mark.parametrize("only", [None, ("flight",)])
def test_the_list_of_dropped_fields_is_bounded(
    only: tuple[str, ...] | None,
) -> None:
    many = {f"secret{number}": 1 for number in range(20_000)}
    row = {"x" * 1_000 + "_secret": 1, **many, "value": json.dumps(many)}
    body = Redaction(drop=("secret",), only=only).body(row, stack=None)
    dropped = 20_001 + (20_000 if only is None else 1)
    assert len(body.redacted) == PATHS + 1
    assert body.redacted[0] == "x" * PATH_CHARACTERS + "…[cut]"
    assert body.redacted[-1] == f"…[{dropped - PATHS} more]"


def test_values_of_dropped_fields_are_removed_from_texts() -> None:
    row = {"card": SECRET, "pin": 12, "note": "x", "value": json.dumps({"card": "9999 1111"})}
    redaction = Redaction(drop=("card", "pin"))
    [message, stack] = redaction.texts(row, f"no card {SECRET}, nor 9999 1111; pin 12", None)

    # Values of fewer than four characters stay, and so do derived values.
    assert (message, stack) == ("no card …[redacted], nor …[redacted]; pin 12", None)
    body = redaction.body(row, stack=f"ValueError: {SECRET}")
    assert body.stack == "ValueError: …[redacted]"


#: Every masked value begins so; the others do not contain it.
MARK = "#masked"
#: Rules, and whether they name a field at a path.
RULES = {
    "card": lambda path: any("card" in name for name in path),
    "P?N": lambda path: any(len(name) == 3 and name[0] + name[2] == "pn" for name in path),
    "$.trip.who": lambda path: ".".join(path).startswith("trip.who"),
    "token": lambda path: any("token" in name for name in path),
}
fields = st.sampled_from(["card", "Card_2", "pin", "pan", "open", "who", "trip", "dgraph.token"])
#: As a masked value these are searched for, with characters that `repr` and JSON escape.
texts = st.text(st.sampled_from("ab0\"'\\\n é漢"), min_size=3, max_size=8)
trees = st.recursive(
    texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(fields, inner, max_size=3)
        | st.dictionaries(fields, inner, max_size=3).map(json.dumps)
    ),
    max_leaves=10,
)


def marked(value: Any, path: tuple[str, ...], is_masked: Any, found: list[str]) -> Any:
    """Return a value with a mark before each leaf that is masked; add these to `found`."""
    if isinstance(value, dict):
        return {
            name: marked(item, (*path, name.lower()), is_masked, found)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [marked(item, path, is_masked, found) for item in value]
    if value[:1] == "{":
        return json.dumps(marked(json.loads(value), path, is_masked, found))
    if is_masked(path):
        found.append(MARK + value)
        return found[-1]
    return value


@given(
    st.dictionaries(fields, trees, max_size=4),
    st.sets(st.sampled_from(list(RULES)), min_size=1),
    st.data(),
)
def test_no_masked_value_is_in_a_body_or_in_texts_about_the_record(
    row: dict[str, Any], rules: set[str], data: st.DataObject
) -> None:
    secrets: list[str] = []
    row = marked(row, (), lambda path: any(RULES[rule](path) for rule in rules), secrets)
    secrets += [secrets[0] + "more"] if secrets else []
    row |= {"cards": secrets[-1:]} if "card" in rules else {}
    quoted = data.draw(st.lists(st.sampled_from(secrets), max_size=4) if secrets else st.just([]))
    quoted = quoted if "card" in rules else [each for each in quoted if each != secrets[-1]]
    message = "".join([f"{quoted}", *quoted, json.dumps(quoted), f"{quoted[:1]}", repr(row)])
    redaction = Redaction(drop=tuple(rules))

    body = redaction.body(row, stack=message)
    [text] = redaction.texts(row, message)

    assert MARK not in repr(body)
    assert MARK not in str(text)
    executors = RedactRow(rules=tuple(rules), only=None, fields=(), key=None)
    assert MARK not in repr(executors(json.dumps(row), message, message))


def test_values_that_overlap_or_contain_one_another_are_hidden_whole() -> None:
    row = {"card": ["4711-0815", "0815-4711-22", "4711-0815-99"]}
    [text] = Redaction(drop=("card",)).texts(row, "a 4711-0815-4711-22 b 4711-0815-99 c")
    assert text == "a …[redacted] b …[redacted] c"


def test_a_value_that_was_cut_with_its_text_is_hidden() -> None:
    value = "4711-0815-4711"
    [head, tail] = Redaction(drop=("card",)).texts(
        {"card": value}, ("." * 4_000 + value)[:4_009], (value + "." * 16_000)[-16_009:]
    )
    assert (str(head)[4_000:], str(tail)[:12]) == ("…[redacted]", "…[redacted].")


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_value_that_was_cut_within_an_escape_is_hidden(cut: int) -> None:
    escaped = json.dumps(json.dumps("4711-é😀\n-0815"))
    head, tail = ("." * 4_000 + escaped)[: 4_000 + cut], (escaped + "." * 4_000)[-4_000 - cut :]
    texts = Redaction(drop=("card",)).texts({"card": "4711-é😀\n-0815"}, head, tail)
    # Up to three of its characters may stay.
    assert not any(part in str(text) for text in texts for part in ("4711", "0815"))


@given(st.text(st.sampled_from("\\\\uUxdD89abcz0 \n\ud800é😀"), max_size=40))
def test_no_text_is_too_odd_to_be_redacted(odd: str) -> None:
    [text] = Redaction(drop=("card",)).texts({"card": SECRET}, f"{odd} {SECRET} {odd}")
    assert text is not None
    assert SECRET not in text


def test_a_value_is_found_at_any_depth_of_json_texts() -> None:
    value = 'C:\\new "4711" é😀\t\\'
    row: dict[str, Any] = {"card": value}
    for _ in range(6):
        row = {"text": json.dumps(row)}
        for text in (json.dumps(row), repr(row)):
            [redacted] = Redaction(drop=("card",)).texts(row, text)
            assert redacted is not None
            assert "new" not in redacted
            assert "4711" not in redacted


def test_a_value_inside_a_masked_json_text_is_hidden_too() -> None:
    row = {"payload": json.dumps({"id": 4711, "pin": SECRET})}
    [text] = Redaction(drop=("payload",)).texts(row, f"refused {SECRET}")
    assert text == "refused …[redacted]"


@pytest.mark.parametrize(
    ("rule", "masked"),
    [
        ("*", ["card", "Cargo", "n", "a.b"]),
        ("ca*", ["card", "Cargo"]),
        ("CAR?", ["card"]),
        ("*r*", ["card", "Cargo"]),
        ("car", ["card", "Cargo"]),
        ("$.a.b", ["a.b"]),
    ],
)
def test_a_rule_is_a_part_of_a_name_or_a_pattern_of_a_whole_name(
    rule: str, masked: list[str]
) -> None:
    row = {"card": 1, "Cargo": 2, "n": 3, "a.b": 4}
    body = Redaction(drop=(rule,)).body(row, stack=None)
    assert list(body.redacted) == masked
    unreadable = Redaction(drop=("pay*card",)).body({"v": '{"payment_card": '}, stack=None)
    assert unreadable.redacted == ("v",)


def test_a_pattern_shows_fields_where_everything_else_is_denied() -> None:
    row = {"card": 1, "flight": 2, "flight_no": 3, "a.flight": 4}
    body = Redaction(only=("flight*",)).body(row, stack=None)
    assert body.record == {"flight": 2, "flight_no": 3}


NESTED = T.StructType().add("who", "string")
SCHEMAS = {
    "closed": T.StructType().add("id", "long").add("trips", T.ArrayType(NESTED)),
    "numbers": T.StructType().add("id", "long").add("fare", "double"),
}


@pytest.mark.parametrize(
    ("rules", "schema", "rows", "warned"),
    [
        (("id", "f*"), "numbers", [], ""),
        (("id", "crad"), "numbers", [], "'crad'"),
        (("$.trips.who",), "closed", [], ""),
        # A text may be JSON: the first failed records decide.
        (("card",), "closed", [], ""),
        (("card",), "closed", [{"trips": [{"who": '{"card": 1}'}]}], ""),
        (("card", "pin"), "closed", [{"trips": [{"who": '{"card": 1}'}]}], "'pin'"),
    ],
)
def test_a_rule_that_matches_nothing_is_one_warning(
    rules: tuple[str, ...],
    schema: str,
    rows: list[dict[str, Any]],
    warned: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    unmatched = UnmatchedRules("trips", rules, SCHEMAS[schema])
    for _ in range(2):
        unmatched.check(rows)

    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == bool(warned)
    assert all(f"pipeline 'trips': redaction of {warned} masks nothing" in each for each in lines)


@pytest.mark.spark
@pytest.mark.skipif(not hasattr(T, "VariantType"), reason="variants are there since Spark 4.0")
def test_a_field_inside_a_variant_is_masked(spark: SparkSession) -> None:
    [row] = spark.range(1).select(F.parse_json(F.lit(json.dumps({"card": SECRET})))).collect()
    assert SECRET not in repr(Redaction(drop=("card",)).body({"v": row[0]}, stack=None))


def test_a_redacted_key_column_stays_on_the_driver() -> None:
    row = {"email": "ann@x.org", "n": 1}
    for redaction in (
        Redaction(drop=("email",), builtin=("key",), key="email"),
        Redaction(drop=("$.payload.email",), key_names=("payload", "email")),
        Redaction(drop=("email",), key_names=("email",)),
    ):
        assert not redaction.shows_key
    redaction = Redaction(drop=("email",), key="email")
    body = redaction.body(row, stack="boom ann@x.org")
    assert (body.record, body.redacted) == ({"n": 1}, ("email",))
    assert redaction.texts(row, "boom ann@x.org") == ["boom …[redacted]"]
    assert not Redaction(drop=("$.dgraph.type",), key="dgraph.type").shows_key
    # Default words do not drop the key that the author declared.
    builtin = Redaction(builtin=("key",), key="key", key_names=("key",))
    assert builtin.shows_key
    assert builtin.body({"key": "LH 400", "api_key": "x"}, stack=None).record == {"key": "LH 400"}


def test_json_inside_json_is_redacted() -> None:
    inner = json.dumps({"name": "ana", "password": "abc12345"})
    redaction = Redaction(drop=("password",))
    for text in (json.dumps(inner), json.dumps(json.dumps(inner)), " " + json.dumps(inner)):
        assert "abc12345" not in json.dumps(redaction.body({"v": text}, stack=None).record)
        assert "ana" in json.dumps(redaction.body({"v": text}, stack=None).record)
        assert redaction.texts({"v": text}, "x abc12345") == ["x …[redacted]"]
    truncated = json.dumps(inner)[:-4]
    assert "abc12345" not in json.dumps(redaction.body({"v": truncated}, stack=None).record)
    # A line of CSV may begin with a quote and is not JSON.
    lines = {"v": '"password","1"', "w": '"plain"'}
    assert redaction.body(lines, stack=None).record == lines


def test_an_allowed_key_leaves_the_driver() -> None:
    assert Redaction(key="id").shows_key
    assert not Redaction(only=("flight",), key="id").shows_key
    assert Redaction(only=("ID",), key="id").shows_key
    assert not Redaction(only=("id",), key=None).shows_key


def test_secret_settings_are_not_shown() -> None:
    redaction = {
        "errors.dlq.path": "s3://me:pass@bucket/dlq",
        "errors.dlq.producer.sasl.jaas.config": "x",
        "errors.dlq.producer.ssl.key.password": "x",
        "errors.dlq.options.accessToken": "x",
        "fs.s3a.access.key": "x",
        "errors.retries.limit": 3,
    }
    shown = {"errors.dlq.path": "s3://…@bucket/dlq", "errors.retries.limit": "3"}
    assert without_secrets(redaction) == shown


class Reading:
    """Records the messages, and answers CONTINUE for the first record."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
        self.messages.append(exception.message)
        return Response.CONTINUE if record.row["position"] == 0 else Response.FAIL


@pytest.mark.spark
def test_no_output_of_the_driver_contains_a_redacted_value(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"cannot charge {row['value']}")

    handler = Reading()
    bench.add(("a", 0, SECRET), ("a", 1, SECRET))
    builder = bench.define(redact=["value"], key="task", show=["position"])
    made_of = bench.define(key=F.concat(F.from_json("value", "email STRING")["email"], F.lit("-x")))
    assert {"value", "email", "-x"} <= set(made_of.key_names)
    pipeline = builder.process("charge", check, on_error=handler)
    bench.start(
        pipeline.write(sink_to(bench.folder / "out")),
        errors_log_enable=True,
        errors_log_include_messages=True,
        errors_log_include_configs=True,
    )
    wait_until(lambda: bool(bench.outbox.of(ThreadDied)))

    # The author's handler receives the complete record.
    assert handler.messages == [f"cannot charge {SECRET}"] * 2
    assert SECRET not in repr(bench.outbox.batches)
    assert SECRET not in caplog.text
    assert levels_of("ValueError: cannot charge …[redacted]: FAIL", caplog) == ["ERROR"]
    assert any("\nTraceback (most recent call last):\n" in each for each in caplog.messages)
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.key, failed.failure.message) == (None, "cannot charge …[redacted]")
    [body] = [event.body for event in bench.outbox.events if event.body is not None]
    assert body.record == {"position": 1}
    assert "test_redaction" in caplog.text and "schema" in caplog.text


def test_redaction_settings_are_validated(tmp_path: Any) -> None:
    from arrester.agents.config import AgentConfig
    from arrester.agents.definition.checks import names_and_paths

    environment = {"ARRESTER_SPOOL": str(tmp_path)}
    with pytest.raises(InvalidConfiguration, match=r"errors.redact.show"):
        AgentConfig.read("a", {"errors.redact.show": "flight"}, environment=environment)
    deny = {"errors.redact.default": "deny", "errors.redact.show": "flight, $.who.name"}
    read = AgentConfig.read("a", deny, environment=environment)
    assert read.errors.show == ("flight", "$.who.name")
    for rules in (3, ["$.items[0].pin"]):
        with pytest.raises(InvalidValue, match="show"):
            names_and_paths("show", rules)  # type: ignore[arg-type]  # the point
    assert names_and_paths("redact", ["$.items[0].pin", "pin"]) == ("$.items.pin", "pin")


@pytest.mark.spark
def test_masked_fields_at_any_depth_leave_neither_in_events_nor_logs_nor_dead_letters(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The fields are in a struct, an array, a map and JSON; the exceptions quote the whole row."""
    kept = "it's open"
    rows = [
        {
            "task": "a",
            "position": number,
            "card": f"{MARK} it's {number}",
            "trip": {"who": f"{MARK}-{number}", "city": kept},
            "many": [{"pin": f'{MARK}"{number}'}, {"pin": f"{MARK}{number}{MARK}"}],
            "by_name": {"Card_2": f"{MARK}\\{number}"},
            "payload": json.dumps({"api_token": f"{MARK}é\n{number}", "open": kept}),
        }
        for number in range(3)
    ]

    def check(row: dict[str, Any]) -> dict[str, Any]:
        inner = json.loads(row["payload"])["api_token"]
        raise ValueError(f"refused {row['card']}, {inner}, {row}: {json.dumps(row)}")

    schema = (
        "task STRING, position BIGINT, card STRING, trip STRUCT<who: STRING, city: STRING>, "
        "many ARRAY<STRUCT<pin: STRING>>, by_name MAP<STRING, STRING>, payload STRING"
    )
    source = bench.spark.createDataFrame([tuple(row.values()) for row in rows], schema)
    pipeline = (
        define("lines", source, task="task", position="position", redact=["p?n", "$.trip.who"])
        .process("charge", check, on={ValueError: Response.CONTINUE})
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(
        pipeline,
        errors_redact="card, crad",
        errors_dlq_redact=True,
        errors_log_enable=True,
        errors_log_include_messages=True,
    )
    wait_until(lambda: bool(bench.ends))

    assert len(bench.outbox.of(RecordFailed)) == len(bench.dead_letters()) == len(rows)
    for shown in (bench.outbox.batches, caplog.text, bench.dead_letters()):
        assert MARK not in repr(shown)
        assert "open" in repr(shown)
    assert levels_of("redaction of 'crad' masks nothing", caplog) == ["WARNING"]


@pytest.mark.spark
def test_dead_letters_are_redacted_if_configured(bench: Bench) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"cannot charge {row['value']}")

    bench.add(("a", 0, SECRET))
    pipeline = (
        bench.define(redact=["value"])
        .deserialize("twice", F.concat("value", "value"))
        .process("charge", check, on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline, errors_dlq_redact=True)
    bench.wait_for_input()
    wait_until(lambda: bool(bench.dead_letters()))
    [dead_letter] = bench.dead_letters()
    assert json.loads(dead_letter["row"]) == {"task": "a", "position": 0}
    assert dead_letter["message"] == "cannot charge …[redacted]"
    assert SECRET not in repr(dead_letter)
    assert (dead_letter["task"], dead_letter["position"], dead_letter["stage"]) == (
        "a",
        0,
        "process:charge",
    )


def test_what_steps_made_of_a_column_with_dropped_values_stays_on_the_driver() -> None:
    columns = {"digits": "4111", "token": "abcd", "at": datetime(2013, 1, 9, 6, 41)}
    received = Received(columns, frozenset({"value"}))
    row = {"value": '{"card": "4111"}', "key": "UA1545"}
    body = Redaction(drop=("token", "key")).body(row, received=received, stack=None)
    assert body.columns == {"digits": "4111", "at": "2013-01-09T06:41:00"}
    assert body.redacted == ("key",)
    for redaction in (Redaction(drop=("$.value.card",)), Redaction(only=("value",))):
        assert redaction.body(row, received=received, stack=None).columns is None


def test_what_steps_made_of_a_dropped_column_of_an_earlier_step_stays_on_the_driver() -> None:
    received = Received({"card": "4111", "digits": "4111"}, frozenset({"value", "card"}))
    row = {"value": b"\x00\xff4111"}
    body = Redaction(drop=("card",)).body(row, received=received, stack=None)
    assert body.columns is None
    body = Redaction(drop=("card",)).body(
        row, received=received._replace(read=frozenset({"value"})), stack=None
    )
    assert body.columns == {"digits": "4111"}
