"""`.write_jdbc` against a PostgreSQL: each row once, and refused records are found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import pytest
from psycopg import sql
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stores.jdbc_call import StagedRowsDiffer
from arrester.agents.definition.stores.jdbc_checks import check_database
from arrester.agents.definition.stores.jdbc_store import checked_jdbc_table
from arrester.agents.definition.stores.stored_numbers import LaterNumberWritten
from arrester.agents.handlers import Handler, LogAndContinue, LogAndPause
from arrester.agents.spark.jvm.stores.jdbc_connection import JdbcConnection
from arrester.agents.spark.postgresql import ROW_NUMBER
from arrester.domain.error_policy.classify import DEFAULT_TABLE, Kind, describe
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed
from tests import postgres_server
from tests.agents.pipeline_bench import Bench, blocks, levels_of
from tests.patience import wait_until
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: Each kind of constraint, and types that take no text by assignment.
_TABLE: tuple[LiteralString, ...] = (
    "CREATE TABLE airports (code text PRIMARY KEY)",
    "INSERT INTO airports VALUES ('JFK')",
    "CREATE TYPE status AS ENUM ('late', 'early')",
    """CREATE TABLE flights (
        task text NOT NULL, position bigint NOT NULL, value text, id bigint UNIQUE,
        code varchar(3) REFERENCES airports, delay integer CHECK (delay < 100),
        doc jsonb, ref uuid, status status, at timestamp, tags varchar(3)[],
        previous bigint REFERENCES flights (id) DEFERRABLE INITIALLY DEFERRED,
        "Spare ""column" text, PRIMARY KEY (task, position))""",
    """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'delay % is refused', NEW.delay USING ERRCODE = NEW.value; END $$""",
    """CREATE TRIGGER refuse BEFORE INSERT ON flights FOR EACH ROW WHEN (NEW.delay = 13)
        EXECUTE FUNCTION refuse()""",
)
_LEFT: LiteralString = "SELECT relname FROM pg_class WHERE relname LIKE 'arrester_staging%'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    assert postgres_server.jdbc_driver(), "no JDBC driver: run scripts/jars postgresql"
    with postgres_server.running() as running:
        yield running


@pytest.fixture
def postgres(server: PostgresServer) -> PostgresServer:
    server.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", *_TABLE)
    return server


def flights(bench: Bench) -> PipelineBuilder:
    """Return a pipeline whose values are the other columns as JSON."""

    def of(name: str, kind: str = "string") -> Any:
        return F.get_json_object("value", f"$.{name}").cast(kind)

    return bench.define().columns(
        "fields",
        id=of("id", "bigint"),
        code=of("code"),
        delay=of("delay", "int"),
        doc=of("doc"),
        ref=of("ref"),
        STATUS=of("status"),
        at=of("at", "timestamp"),
        tags=F.split(of("tags"), ","),
        previous=of("previous", "long"),
        value=of("value"),
    )


def positions(postgres: PostgresServer) -> list[int]:
    return [row[0] for row in postgres.rows("SELECT position FROM flights ORDER BY 1")]


def sink(
    bench: Bench, postgres: PostgresServer, on_error: Handler | None = None, **more: Any
) -> Pipeline:
    arguments: dict[str, Any] = {"url": postgres.url, "options": postgres.options} | more
    return flights(bench).write_jdbc("flights", on_error=on_error, **arguments)


def add(bench: Bench, *rows: tuple[str, int, dict[str, Any]]) -> None:
    bench.add(*[(task, position, json.dumps(fields)) for task, position, fields in rows])


@pytest.mark.smoke
def test_each_kind_of_refused_record_is_found_and_the_others_are_written_once(
    bench: Bench, postgres: PostgresServer, spark: SparkSession
) -> None:
    before = blocks(spark)
    refused: dict[int, tuple[str, dict[str, Any]]] = {
        3: ("23503", {"code": "LAX"}),
        5: ("23514", {"delay": 100}),
        7: ("22001", {"code": "JFKX"}),
        8: ("22P02", {"doc": "{"}),
        9: ("22P02", {"ref": "no uuid"}),
        11: ("22P02", {"status": "lost"}),
        12: ("23505", {"id": 1}),
        13: ("P0001", {"delay": 13, "value": "P0001"}),
        14: ("22001", {"tags": "new,late"}),
        15: ("23503", {"previous": 404}),
    }
    good: dict[str, Any] = {
        "code": "JFK",
        "doc": '{"a": 1}',
        "ref": "6dca1c55-8f8a-4b4e-9c9b-5a3f3b8d2d0f",
    }
    good |= {"status": "late", "at": "2026-01-02 03:04:05", "tags": "new,old"}
    rows = [
        ("ab"[n % 2], n, refused[n][1] if n in refused else {"id": n, **good}) for n in range(20)
    ]
    # It refers to the last row.
    rows[0][2]["previous"] = 19
    bench.add((None, 20, "{}"))
    add(bench, *rows)
    bench.start(sink(bench, postgres, LogAndContinue()), errors_examples_limit=100)
    bench.wait_for_input()
    bench.stop()

    assert bench.ends == []
    assert positions(postgres) == [n for n in range(20) if n not in refused]
    failed = {each.position: each.failure for each in bench.outbox.of(RecordFailed)}
    conditions = {n: condition for n, (condition, _) in refused.items()} | {20: "23502"}
    assert {n: failure.condition for n, failure in failed.items()} == conditions
    # The table's column, not a value of the row.
    named = {n: failure.field for n, failure in failed.items() if failure.field}
    assert list(named) == [20] and f'null value in column "{named[20]}"' in failed[20].message
    assert "delay 13 is refused" in failed[13].message
    assert failed[5].exception_class == "org.postgresql.util.PSQLException"
    assert {each["position"] for each in bench.dead_letters()} == set(conditions)
    [(id, code, doc, status, at, tags, previous)] = postgres.rows(
        "SELECT id, code, doc, status, at::text, tags, previous FROM flights WHERE position = 0"
    )
    assert (id, code, doc, status, previous) == (0, "JFK", {"a": 1}, "late", 19)
    assert (at, tags) == ("2026-01-02 03:04:05", ["new", "old"])
    assert postgres.rows("SELECT number FROM arrester_numbers") == [(1,)]
    assert postgres.rows(_LEFT) == []
    assert blocks(spark) <= before


def test_a_record_fails_in_a_step_and_the_table_refuses_another_one(
    bench: Bench, postgres: PostgresServer
) -> None:
    """The decision about the first is durable when the staged rows are refused."""
    postgres.execute(
        "CREATE TABLE numbers (task text, position bigint, value text, n int CHECK (n < 100))"
    )
    pipeline = (
        bench.define()
        .deserialize("n", F.col("value").cast("int"), on_error=LogAndContinue())
        .write_jdbc(
            "numbers", url=postgres.url, options=postgres.options, on_error=LogAndContinue()
        )
    )
    bench.add(("a", 0, "0"), ("a", 1, "x"), ("b", 0, "0"))
    bench.add(("a", 2, "2"), ("a", 3, "x"), ("a", 4, "100"), ("b", 1, "1"))
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()

    rows = postgres.rows("SELECT task, position FROM numbers ORDER BY 1, 2")
    assert rows == [("a", 0), ("a", 2), ("b", 0), ("b", 1)]
    failed = [(each.position, each.failure.stage) for each in bench.outbox.of(RecordFailed)]
    assert failed == [(1, "deserialize"), (3, "deserialize"), (4, "produce")]
    assert sorted(each["position"] for each in bench.dead_letters()) == [1, 3, 4]
    assert postgres.rows("SELECT number FROM arrester_numbers") == [(1,)]
    assert postgres.rows(_LEFT) == []


#: Local times of an hour that Berlin skips, of one with an offset in seconds, and of a later year.
LOCAL_TIMES = ("2026-03-29 02:30:00", "1890-01-01 00:00:00.000001", "10000-01-01 00:00:00")


def test_a_time_without_a_zone_does_not_depend_on_the_zone_of_the_jvm(
    bench: Bench, postgres: PostgresServer
) -> None:
    postgres.execute(
        """CREATE TABLE times (task text, position bigint, value text, at timestamp PRIMARY KEY,
            times timestamp[], text text)"""
    )
    at = F.col("value").cast("timestamp_ntz")
    pipeline = (
        bench.define()
        .columns("times", at=at, times=F.array(at), text=at)
        .write_jdbc("times", url=postgres.url, options=postgres.options, key="at")
    )
    bench.add(*(("a", position, text) for position, text in enumerate(LOCAL_TIMES)))
    jvm: Any = bench.spark._jvm
    zones = jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("Europe/Berlin"))
    try:
        bench.start(pipeline)
        bench.wait_for_input()
        bench.stop()
    finally:
        zones.setDefault(before)
    found = postgres.rows("SELECT at::text, times[1]::text, text FROM times ORDER BY position")
    assert [tuple(each.lstrip("+") for each in row) for row in found] == [
        (text, text, text) for text in LOCAL_TIMES
    ]


@pytest.mark.long
def test_rows_of_a_key_are_replaced_and_a_repeated_call_writes_nothing(
    bench: Bench, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    # A column of the key may be NULL: then the row equals no other.
    postgres.execute("ALTER TABLE flights DROP CONSTRAINT flights_pkey")
    pipeline = sink(bench, postgres, LogAndPause(), key="id")
    add(bench, ("a", 0, {"id": 1, "delay": 1}), ("a", 1, {"id": 1, "delay": 2}), ("a", 2, {}))
    add(bench, ("b", 0, {"id": 1, "delay": 3}), ("a", 3, {"id": 2, "code": "LAX"}), ("a", 4, {}))
    thread = bench.start(pipeline)
    bench.wait_for_input()
    assert [(each.id.key, each.position) for each in thread.paused_tasks()] == [("a", 3)]
    query: LiteralString = "SELECT id, delay, position FROM flights ORDER BY id, position"
    assert postgres.rows(query) == [(1, 3, 0), (None, None, 2)]

    postgres.execute("INSERT INTO airports VALUES ('LAX')", "UPDATE flights SET delay = 99")

    def start_again() -> None:
        """As if Spark had not committed the last micro-batch."""
        bench.stop()
        bench.uncommit(1)
        # Another instance starts the paused task at its failed record.
        bench.start(pipeline)
        wait_until(lambda: bench.committed() == 1)

    start_again()
    wait_until(lambda: len(postgres.rows(query)) == 4)
    # Held records have a later number than the micro-batch, which is repeated once more.
    postgres.execute("UPDATE flights SET delay = 98")
    start_again()
    bench.stop()
    assert postgres.rows(query) == [(1, 98, 0), (2, 98, 3), (None, 98, 2), (None, 98, 4)]
    assert postgres.rows("SELECT number FROM arrester_numbers") == [(2,)]
    assert (bench.ends, bench.dead_letters()) == ([], [])

    postgres.execute("UPDATE arrester_numbers SET number = 3")
    with pytest.raises(LaterNumberWritten, match=r"has number 3 of checkpoint .* is 2: .*new"):
        bench.start(pipeline)


def test_a_start_names_what_is_wrong_with_the_database(
    bench: Bench, postgres: PostgresServer
) -> None:
    postgres.execute(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN PASSWORD 'reader'",
        "GRANT USAGE ON SCHEMA public TO reader",
        "GRANT INSERT ON flights TO reader",
        "CREATE TABLE narrow (task text, position bigint, value text)",
        "CREATE TABLE other (LIKE flights)",
        "ALTER TABLE other ALTER delay TYPE boolean USING NULL",
    )
    reader = {"user": "reader", "password": "reader"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"options": {"driver": "org.example.Driver"}}, "driver: 'org.example.Driver'.*spark.jars"),
        ({"url": "jdbc:postgresql://127.0.0.1:1/x?password=z"}, "url: .*:1/x' is not .*refused"),
        ({"url": postgres.url + "_2"}, 'url: .*database "postgres_2" does not exist'),
        ({"options": reader | {"password": "z"}}, "user: 'reader'.* password authentication"),
        ({"options": reader}, "table: 'flights'.*GRANT CREATE.*permission denied for schema"),
        ({"table": "flight"}, "table: 'flight'.*create it"),
        ({"table": "narrow"}, "column: 'id'.*a column of the table public.narrow"),
        ({"table": "other"}, '"delay" is of type boolean but expression is of type integer'),
        ({"key": ["id", "code"]}, r"key: .*CREATE UNIQUE INDEX ON flights \(id, code\)"),
    ]
    for given, message in wrong:
        arguments = {"table": "flights", "url": postgres.url, "options": postgres.options} | given
        pipeline = flights(bench).write_jdbc(**arguments)
        with pytest.raises(InvalidValue, match=message) as raised:
            bench.start(pipeline)
        assert "\n" not in str(raised.value)
        assert "password=z" not in str(raised.value)
    assert not Path(bench.checkpoint).exists()
    assert postgres.rows(_LEFT) == []

    at_definition: list[tuple[dict[str, Any], str]] = [
        ({"url": "jdbc:mysql://h/d?password=z"}, r"jdbc:mysql://h/d' is not.*\.write\(fn\)"),
        ({"key": "idd"}, "key: 'idd'.*a column of the rows .nearest: id"),
        ({"options": {"dbtable": "x"}}, "options: 'dbtable'"),
        ({"options": {1: "x"}}, "options: 1 is not allowed"),
        ({"table": ""}, "table: ''"),
    ]
    for given, message in at_definition:
        with pytest.raises(InvalidValue, match=message):
            flights(bench).write_jdbc(**({"table": "flights", "url": postgres.url} | given))
    with pytest.raises(InvalidValue, match="map<string,string>: drop it, or use to_json"):
        nested = bench.define().columns("c", m=F.create_map("task", "value"))
        nested.write_jdbc("flights", url=postgres.url)


@pytest.mark.long
def test_a_character_that_no_text_can_have_is_found_by_jobs(
    bench: Bench, postgres: PostgresServer
) -> None:
    """The database finds the others, also rows that exclude each other."""
    add(bench, *[("a", n, {"value": "nul \0" if n == 2 else "x"}) for n in range(4)])
    add(bench, ("a", 4, {"id": 1}), ("a", 5, {"id": 1}), ("a", 6, {"value": "nul \0"}))
    bench.start(sink(bench, postgres, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    assert bench.ends == []
    assert positions(postgres) == [0, 1, 3, 4]
    failed = {each.position: each.failure.condition for each in bench.outbox.of(RecordFailed)}
    assert failed == {2: "22021", 5: "23505", 6: "22021"}


@pytest.mark.long
def test_a_conflict_is_retried_and_never_a_failure_of_a_record(
    bench: Bench, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    # A rollback does not take back the numbers of a sequence.
    postgres.execute(
        "CREATE SEQUENCE calls",
        """CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('calls') IN (1, 2, 5) THEN
                RAISE EXCEPTION 'conflict' USING ERRCODE = '40001';
            END IF; RETURN NEW; END $$""",
        """CREATE TRIGGER conflict BEFORE INSERT ON flights FOR EACH ROW
            EXECUTE FUNCTION conflict()""",
    )
    # Calls of the trigger: fast path 1, slow path 2, again 3 and 4, search 5, again from 6 on.
    add(bench, ("a", 0, {}), ("a", 1, {"delay": 100}))
    keys: dict[str, Any] = {"errors_retries_limit": 9, "errors_retries_delay_max_ms": 1}
    bench.start(sink(bench, postgres, LogAndContinue()), **keys)
    bench.wait_for_input()
    bench.stop()
    assert (bench.ends, positions(postgres)) == ([], [0])
    assert [each.position for each in bench.outbox.of(RecordFailed)] == [1]
    assert postgres.rows("SELECT last_value > 8 FROM calls") == [(True,)]
    retried = ": org.postgresql.util.PSQLException (40001): ERROR: conflict. It is tried again"
    assert set(levels_of(retried, caplog)) == {"ERROR"}

    # Without a budget the run ends.
    postgres.execute("ALTER SEQUENCE calls RESTART")
    add(bench, ("a", 2, {}))
    bench.start(sink(bench, postgres, LogAndContinue()))
    wait_until(lambda: bool(bench.ends))
    assert "org.postgresql.util.PSQLException (40001): ERROR: conflict" in bench.ends[0].reason
    assert [each.position for each in bench.outbox.of(RecordFailed)] == [1]

    # The server restarts while the pipeline runs; each row is there once.
    postgres.execute("ALTER SEQUENCE calls RESTART WITH 100")
    bench.ends.clear()
    keys = {"errors_retry_timeout": -1, "errors_retries_delay_max_ms": 100}
    bench.start(sink(bench, postgres, LogAndContinue()), **keys)
    wait_until(lambda: positions(postgres) == [0, 2])
    postgres.stop()
    add(bench, ("a", 3, {}))
    wait_until(lambda: bench.threads[-1].in_progress is not None)
    postgres.start()
    bench.wait_for_input()
    assert (bench.ends, positions(postgres)) == ([], [0, 2, 3])
    assert postgres.rows(_LEFT) == []


def test_rows_that_a_repeated_task_wrote_twice_are_not_inserted(
    postgres: PostgresServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(3).select(F.lit("a").alias("task"), F.col("id").alias("position"))
    table = checked_jdbc_table(
        rows.schema, table="flights", url=postgres.url, key=(), options=postgres.options
    ).at("checkpoint")
    check_database(table, spark)
    value = JdbcConnection.value

    def with_repeated_rows(self: JdbcConnection, query: str, *parameters: object) -> str | None:
        """As if a Spark task had failed after its commit."""
        if "count(*)" in query:
            staging = query.rpartition(" ")[2]
            self.execute(f"INSERT INTO {staging} SELECT * FROM {staging} LIMIT 1")
        return value(self, query, *parameters)

    with monkeypatch.context() as patch:
        patch.setattr(JdbcConnection, "value", with_repeated_rows)
        with pytest.raises(StagedRowsDiffer, match="has 4 rows, and Spark wrote 3"):
            table(rows, 0)
    assert positions(postgres) == []
    table(rows, 0)
    table(rows, 0)
    assert positions(postgres) == [0, 1, 2]
    assert DEFAULT_TABLE.classify(describe(StagedRowsDiffer(""))).kind is Kind.RETRIABLE


def test_a_staging_table_that_is_lost_between_writes_is_filled_again(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    postgres.execute("ALTER TABLE flights ADD CHECK (position <> 1)")
    rows = spark.range(3).select(F.lit("a").alias("task"), F.col("id").alias("position"))
    table = checked_jdbc_table(
        rows.schema, table="flights", url=postgres.url, key=(), options=postgres.options
    ).at("checkpoint")
    check_database(table, spark)
    rows = rows.withColumn(ROW_NUMBER, F.col("position"))
    with table.open_call() as call:

        def is_refused() -> None:
            with pytest.raises(Py4JJavaError, match="violates check constraint"):
                call.write(rows, 0)

        is_refused()
        # As a crash does to an unlogged table.
        [(staging,)] = postgres.rows(_LEFT)
        postgres.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(staging)))
        with pytest.raises(StagedRowsDiffer, match="has 0 rows, and Spark wrote 3"):
            call.write(rows, 0)
        is_refused()
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        with pytest.raises(Py4JJavaError, match="terminating connection"):
            call.write(rows, 0)
        is_refused()
        assert len(postgres.rows(_LEFT)) == 1
        call.leave_out(rows.where("position = 1").select(ROW_NUMBER))
        call.write(rows, 0)
    assert positions(postgres) == [0, 2]
    assert postgres.rows(_LEFT) == []


@pytest.mark.long
def test_a_cancelled_statement_is_retried_and_never_a_failure_of_a_record(
    bench: Bench, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute("INSERT INTO flights (task, position, id) VALUES ('b', 0, 1)")
    url = f"{postgres.url}?options=-c%20statement_timeout=300"
    add(bench, ("a", 0, {"id": 1, "delay": 1}), ("a", 1, {"id": 2, "delay": 100}))
    keys: dict[str, Any] = {"errors_retry_timeout": -1, "errors_retries_delay_max_ms": 1}
    with postgres.connect() as other, other.transaction():
        other.execute("UPDATE flights SET value = 'theirs' WHERE id = 1")
        bench.start(sink(bench, postgres, LogAndContinue(), url=url, key="id"), **keys)
        wait_until(lambda: "attempt 2" in caplog.text)
    bench.wait_for_input()
    bench.stop()
    assert bench.ends == []
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.position, failed.failure.condition) == (1, "23514")
    assert postgres.rows("SELECT id, delay, value FROM flights") == [(1, 1, None)]

    postgres.execute("ALTER TABLE flights RENAME TO renamed", *_TABLE[3:4])
    with postgres.connect() as other, other.transaction():
        other.execute("LOCK TABLE flights")
        bench.checkpoint += "-2"
        with pytest.raises(InvalidValue, match=r"that is not locked.*statement timeout"):
            bench.start(sink(bench, postgres, url=url))


def tenant(postgres: PostgresServer, *statements: LiteralString) -> dict[str, Any]:
    """Make a role that may write rows of its own; return its login."""
    if postgres.rows("SELECT 1 FROM pg_roles WHERE rolname = 'tenant'"):
        postgres.execute("DROP OWNED BY tenant", "DROP ROLE tenant")
    postgres.execute(
        "CREATE ROLE tenant LOGIN PASSWORD 'tenant'",
        "GRANT USAGE, CREATE ON SCHEMA public TO tenant",
        "GRANT SELECT, INSERT, UPDATE ON flights TO tenant",
        "ALTER TABLE flights ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY tenant ON flights USING (true) WITH CHECK (value = 'mine')",
        *statements,
    )
    return {"options": {"user": "tenant", "password": "tenant"}}


@pytest.mark.parametrize("key", [(), ("task", "position")])
@pytest.mark.long
def test_a_row_that_a_policy_or_trigger_refuses_is_the_failure_of_its_record(
    bench: Bench, postgres: PostgresServer, key: tuple[str, ...]
) -> None:
    login = tenant(
        postgres,
        "CREATE TABLE secret (position bigint)",
        """CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO secret VALUES (NEW.position); RETURN NEW; END $$""",
        """CREATE TRIGGER note BEFORE INSERT ON flights FOR EACH ROW WHEN (NEW.delay = 14)
            EXECUTE FUNCTION note()""",
        """CREATE FUNCTION look_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM 1 FROM nowhere; RETURN NEW; END $$""",
        """CREATE TRIGGER look_up BEFORE INSERT ON flights FOR EACH ROW WHEN (NEW.delay = 15)
            EXECUTE FUNCTION look_up()""",
        "ALTER TABLE flights ALTER code TYPE text, DROP CONSTRAINT flights_code_fkey",
        """CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'refused' USING ERRCODE = NEW.code; END $$""",
    )
    states = {4: "28000", 5: "3D000", 6: "42501", 7: "42P01", 8: "42703"}
    pipeline = sink(bench, postgres, LogAndContinue(), key=key, **login)
    # Alone in its micro-batch, too.
    add(bench, ("z", 0, {"value": "theirs"}))
    mine = {"value": "mine"}
    add(
        bench,
        *(("a", n, mine) for n in range(1, 3)),
        ("a", 3, {"value": "theirs"}),
        *(("a", n, mine | {"delay": 13, "code": state}) for n, state in states.items()),
        ("a", 9, mine | {"delay": 14}),
        ("a", 10, mine),
        ("a", 11, mine | {"delay": 15}),
    )
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()
    assert bench.ends == []
    assert positions(postgres) == [1, 2, 10]
    failed = {each.position: each.failure for each in bench.outbox.of(RecordFailed)}
    assert {n: failure.condition for n, failure in failed.items()} == {
        **states,
        **dict.fromkeys((0, 3, 9), "42501"),
        11: "42P01",
    }
    assert "row-level security" in failed[3].message
    assert "permission denied for table secret" in failed[9].message


@pytest.mark.long
def test_a_row_of_a_transform_that_a_policy_refuses_is_found_by_jobs(
    bench: Bench, postgres: PostgresServer
) -> None:
    login = tenant(postgres)
    pipeline = bench.define().transform("all", lambda df: df)
    bench.add(*[("a", n, "theirs" if n == 1 else "mine") for n in range(3)])
    bench.start(
        pipeline.write_jdbc("flights", url=postgres.url, on_error=LogAndContinue(), **login)
    )
    bench.wait_for_input()
    bench.stop()
    assert (bench.ends, positions(postgres)) == ([], [0, 2])
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.position, failed.failure.condition) == (1, "42501")


def test_a_missing_right_that_only_rows_need_ends_the_run(
    bench: Bench, postgres: PostgresServer
) -> None:
    login = tenant(
        postgres,
        "CREATE SEQUENCE numbers",
        "ALTER TABLE flights ADD number bigint DEFAULT nextval('numbers')",
    )
    add(bench, *(("a", n, {"value": "mine"}) for n in range(3)))
    bench.start(sink(bench, postgres, LogAndContinue(), **login))
    wait_until(lambda: bool(bench.ends))
    assert "permission denied for sequence numbers" in bench.ends[0].reason
    assert "\n" not in bench.ends[0].reason
    assert bench.outbox.of(RecordFailed) == []
