"""The log is its batches; the rows of events are what they are searched by, and numbers only."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec
from django.db import migrations, models


def number(name: str) -> int:
    """Return the number of a type of events, as `store.marks` has it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], signed=True)


DEAD_LETTERS = number("RecordsDeadLettered")
COUNTS = ", ".join(
    str(number(name)) for name in ("RetriesCounted", "RecordsHeld", "RecordsDeadLettered")
)
ACTS = ", ".join(
    str(number(name))
    for name in (
        "ErrorGroupResolved",
        "ErrorGroupReopened",
        "ErrorGroupMuted",
        "ErrorGroupUnmuted",
        "NoteAdded",
    )
)
STREAM = """
ALTER TABLE stream ADD COLUMN id integer GENERATED ALWAYS AS IDENTITY;
ALTER TABLE stream ADD CONSTRAINT stream_id UNIQUE (id);
"""
# An index or a constraint keeps its name when its table is renamed.
ASIDE = """
ALTER TABLE event RENAME TO event_whole;
ALTER TABLE event_body RENAME TO event_body_whole;
DO $$
DECLARE
    part record;
BEGIN
    FOR part IN SELECT inhrelid::regclass::text AS name FROM pg_inherits
        WHERE inhparent IN ('event_whole'::regclass, 'event_body_whole'::regclass)
            AND inhrelid IN (SELECT oid FROM pg_class WHERE relkind = 'r')
    LOOP
        EXECUTE format('ALTER TABLE %I RENAME TO %I', part.name, 'old_' || part.name);
    END LOOP;
    FOR part IN SELECT relname AS name FROM pg_class
        WHERE relkind IN ('i', 'I') AND relname ~ '^event'
    LOOP
        EXECUTE format('ALTER INDEX %I RENAME TO %I', part.name, 'old_' || part.name);
    END LOOP;
END
$$;
"""
# No key: that no position is there twice is said by the batch that holds it.
EVENT = f"""
CREATE TABLE event (
    stream integer NOT NULL,
    day date NOT NULL,
    sequence bigint NOT NULL,
    occurred_at timestamptz NOT NULL,
    place integer NOT NULL,
    type integer NOT NULL,
    task uuid,
    cause bigint,
    count bigint,
    pipeline integer,
    stage integer,
    exception_class integer,
    command uuid,
    actor text
) PARTITION BY RANGE (day);
CREATE INDEX event_of_task ON event (task, sequence) WHERE task IS NOT NULL;
CREATE INDEX event_of_cause ON event (cause, occurred_at, sequence) WHERE count IS NOT NULL;
CREATE INDEX event_failures ON event (stream, occurred_at, sequence) WHERE count IS NOT NULL;
CREATE INDEX event_of_command ON event (command, sequence) WHERE command IS NOT NULL;
CREATE INDEX event_of_people ON event (occurred_at) WHERE actor IS NOT NULL;
CREATE INDEX event_dead_letters ON event (occurred_at) WHERE type = {DEAD_LETTERS};
CREATE INDEX event_acts_on_group ON event (cause, sequence) WHERE type IN ({ACTS});
-- What changed a state, among the many events that only count.
CREATE INDEX event_turns ON event (stream, sequence)
    WHERE count IS NULL AND type NOT IN ({COUNTS});
CREATE INDEX event_turns_of_task ON event (task, sequence)
    WHERE task IS NOT NULL AND count IS NULL AND type NOT IN ({COUNTS});
CREATE TABLE event_default PARTITION OF event DEFAULT;
"""
BATCH = """
CREATE TABLE batch (
    stream integer NOT NULL,
    sequence bigint NOT NULL,
    day date NOT NULL,
    count integer NOT NULL,
    id uuid NOT NULL,
    received_at timestamptz NOT NULL,
    heads bytea NOT NULL,
    bodies bytea,
    PRIMARY KEY (stream, sequence, day)
) PARTITION BY RANGE (day);
-- They come compressed: trying again would cost and gain nothing.
ALTER TABLE batch ALTER COLUMN heads SET STORAGE EXTERNAL;
ALTER TABLE batch ALTER COLUMN bodies SET STORAGE EXTERNAL;
CREATE TABLE batch_default PARTITION OF batch DEFAULT;
"""
GUARD = """
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change();
"""
GUARDED = ["event", "event_default", "batch", "batch_default"]

# A fold takes batch_seen, then event, then batch: so does whoever changes their partitions.
# A statement that names a partition fires the partition's own triggers only, so each has one.
# A day with rows in the default partition stays there: its own one could not be attached.
ENSURE_PARTITIONS = """
CREATE OR REPLACE FUNCTION arrester_ensure_partitions(first date, days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    parent text;
    name text;
    key text;
    low text;
    high text;
    of_day date;
    late boolean;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('arrester_ensure_partitions'));
    FOREACH parent IN ARRAY ARRAY['batch_seen', 'event', 'batch'] LOOP
        FOR number IN 0 .. days - 1 LOOP
            of_day := first + number;
            name := parent || '_' || to_char(of_day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass(name) IS NOT NULL;
            IF parent = 'batch_seen' THEN
                key := 'batch';
                low := arrester_first_batch(of_day)::text;
                high := arrester_first_batch(of_day + 1)::text;
            ELSE
                key := 'day';
                low := of_day::text;
                high := (of_day + 1)::text;
            END IF;
            EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= %L AND %I < %L)',
                parent || '_default', key, low, key, high) INTO late;
            CONTINUE WHEN late;
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                name, parent, low, high);
            EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I
                FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change()', name);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
SELECT arrester_ensure_partitions((now() AT TIME ZONE 'UTC')::date, 8);
SELECT arrester_ensure_partitions(day, 1)
    FROM (SELECT DISTINCT day FROM event_whole WHERE day < now()) AS early;
"""
# What no base covers cannot be dropped, whoever asks; nor can today and yesterday. A base is one
# that stands at an event of the log and has the application's state there.
DROP_DAYS = """
CREATE OR REPLACE FUNCTION arrester_days_due(before date, batches_before date)
RETURNS TABLE (name text) LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhrelid::regclass::text ~ '_[0-9]{8}$'
        AND to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD')
            < CASE WHEN inhparent = 'batch_seen'::regclass THEN batches_before ELSE before END
        AND inhparent IN ('batch_seen'::regclass, 'event'::regclass, 'batch'::regclass)
$$;
CREATE OR REPLACE FUNCTION arrester_drop_days(before date, batches_before date)
RETURNS TABLE (partitions integer, bytes bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    part record;
    uncovered text;
    parent text;
BEGIN
    IF greatest(before, batches_before) >= (now() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'today and yesterday are not dropped';
    END IF;
    partitions := 0;
    bytes := 0;
    IF NOT EXISTS (SELECT FROM arrester_days_due(before, batches_before))
        AND NOT EXISTS (SELECT FROM event_default WHERE day < before)
        AND NOT EXISTS (SELECT FROM batch_default WHERE day < before)
    THEN
        RETURN NEXT;
        RETURN;
    END IF;
    LOCK TABLE batch_seen, event, batch IN ACCESS EXCLUSIVE MODE;
    SELECT stream.application INTO uncovered
    FROM stream LEFT JOIN LATERAL (
        SELECT base.position, base.received_at FROM base
        WHERE base.application = stream.application ORDER BY base.position DESC LIMIT 1
    ) AS newest ON true
    LEFT JOIN LATERAL (
        SELECT batch.sequence + batch.count - 1 AS position FROM batch
        WHERE batch.stream = stream.id AND batch.day < before
        ORDER BY batch.sequence DESC LIMIT 1
    ) AS last ON true
    LEFT JOIN LATERAL (
        SELECT batch.sequence + batch.count - 1 AS position, batch.received_at FROM batch
        WHERE batch.stream = stream.id AND batch.sequence <= newest.position
        ORDER BY batch.sequence DESC LIMIT 1
    ) AS covered ON true
    WHERE last.position > coalesce(newest.position, 0)
        OR newest.position > stream.sequence
        OR (last.position IS NOT NULL AND (covered.position >= newest.position
            AND covered.received_at = newest.received_at) IS NOT TRUE)
        OR (newest.position IS NOT NULL AND NOT EXISTS (SELECT FROM base_state
            WHERE base_state.application = stream.application
                AND base_state.kind = 'application' AND base_state.key = stream.application
                AND base_state.position = newest.position))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'no base covers what % had before %', uncovered, before;
    END IF;
    FOR part IN SELECT due.name FROM arrester_days_due(before, batches_before) AS due LOOP
        bytes := bytes + pg_total_relation_size(part.name::regclass);
        EXECUTE format('DROP TABLE %s', part.name);
        partitions := partitions + 1;
    END LOOP;
    -- Days that had no partition of their own.
    FOREACH parent IN ARRAY ARRAY['event_default', 'batch_default'] LOOP
        EXECUTE format('ALTER TABLE %I DISABLE TRIGGER append_only', parent);
        EXECUTE format('DELETE FROM %I WHERE day < %L', parent, before);
        EXECUTE format('ALTER TABLE %I ENABLE TRIGGER append_only', parent);
    END LOOP;
    -- What a newer base says, and what no longer can be asked for.
    DELETE FROM base_state AS old USING base_state AS newer
    WHERE newer.application = old.application AND newer.kind = old.kind AND newer.key = old.key
        AND newer.position > old.position;
    DELETE FROM base_state WHERE state = 'null';
    DELETE FROM base AS old USING base AS newer
    WHERE newer.application = old.application AND newer.position > old.position;
    DELETE FROM snapshot USING base
    WHERE snapshot.application = base.application AND snapshot.position <= base.position;
    RETURN NEXT;
END
$$;
"""
# Not SECURITY DEFINER: it can do no more than whoever calls it, and nobody but the owner may
# switch the guard off.
ERASE_BODY = """
DROP FUNCTION arrester_erase_body;
CREATE FUNCTION arrester_erase_body(
    of_stream integer, first bigint, of_day date, replacement bytea
) RETURNS text
LANGUAGE plpgsql SET search_path = public, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    part text;
    changed integer;
BEGIN
    SELECT tableoid::regclass::text INTO STRICT part FROM batch
        WHERE stream = of_stream AND sequence = first AND day = of_day;
    EXECUTE format('ALTER TABLE %s DISABLE TRIGGER append_only', part);
    EXECUTE format('UPDATE %s SET bodies = $1 WHERE stream = $2 AND sequence = $3
        AND day = $4', part) USING replacement, of_stream, first, of_day;
    GET DIAGNOSTICS changed = ROW_COUNT;
    EXECUTE format('ALTER TABLE %s ENABLE TRIGGER append_only', part);
    IF changed <> 1 THEN
        RAISE EXCEPTION '% rows would have changed', changed;
    END IF;
    RETURN part;
END
$$;
REVOKE EXECUTE ON FUNCTION arrester_erase_body FROM PUBLIC;
"""
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT ON event, batch TO arrester_app;
    END IF;
END
$$;
"""
# Of names as numbers: the first bits of their SHA-256.
ROWS = """
CREATE FUNCTION pg_temp.mark(name text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 8))::bit(32)::integer
$$;
INSERT INTO event (stream, day, sequence, occurred_at, place, type, task, cause, count, pipeline,
    stage, exception_class, command, actor)
SELECT batch.stream, batch.day, old.sequence, old.occurred_at, old.sequence - batch.sequence,
    pg_temp.mark(old.type), old.task,
    ('x' || left(encode(sha256(convert_to(old.application || ' ' || old.fingerprint, 'UTF8')),
        'hex'), 16))::bit(64)::bigint,
    old.count, pg_temp.mark(old.pipeline), pg_temp.mark(old.stage),
    pg_temp.mark(old.exception_class), old.command, old.actor
FROM batch JOIN stream ON stream.id = batch.stream CROSS JOIN LATERAL (
    SELECT * FROM event_whole WHERE event_whole.application = stream.application
        AND event_whole.sequence >= batch.sequence
        AND event_whole.sequence < batch.sequence + batch.count AND event_whole.day = batch.day
) AS old ORDER BY batch.stream, old.sequence;
DROP TABLE event_whole;
DROP TABLE event_body_whole;
"""
OLD = """
SELECT stream.id, event.sequence, event.day, event.batch, event.received_at, event.occurred_at,
    event.instance, event.pipeline, event.checkpoint, event.epoch, event.caused_by,
    event.schema_version, event.data, body.count, body.packed
FROM event_whole AS event JOIN stream ON stream.application = event.application
LEFT JOIN event_body_whole AS body ON body.application = event.application
    AND body.sequence = event.sequence AND body.day = event.day
ORDER BY event.application, event.sequence
"""
NEW = """
INSERT INTO batch (stream, sequence, day, count, id, received_at, heads, bodies)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
Row = tuple[Any, ...]


def carry_over(apps: object, schema_editor: Any) -> None:
    """Pack the events of each batch again, without the bodies that lie with some of them."""
    connection = schema_editor.connection
    with connection.chunked_cursor() as old, connection.cursor() as new:
        old.execute(OLD)
        for _, rows in groupby(old, key=_Batch()):
            some = list(rows)
            stream, sequence, day, batch, received_at = some[0][:5]
            packed = some[0][-1]
            new.execute(
                NEW,
                [
                    *(stream, sequence, day, len(some), batch, received_at),
                    zlib.compress(msgspec.msgpack.encode([_head(row) for row in some]), 1),
                    None if packed is None else _bodies(bytes(packed)),
                ],
            )


class _Batch:
    """Tells batches apart: by their ids, and by where a row of bodies begins and ends."""

    def __init__(self) -> None:
        self._number, self._left = 0, 0
        self._of: Row = ()

    def __call__(self, row: Row) -> int:
        same = (row[0], *row[2:5])
        if same != self._of or row[-2] is not None or self._left == 0:
            self._number += 1
            # Without a row of bodies, until another batch or such a row comes.
            self._of, self._left = same, -1 if row[-2] is None else row[-2]
        self._left -= 1
        return self._number


def _head(row: Row) -> dict[str, Any]:
    occurred_at, instance, pipeline, checkpoint, epoch, caused_by, schema_version, data = row[5:13]
    run = {"pipeline": pipeline, "checkpoint": checkpoint, "epoch": epoch}
    head = {
        "occurred_at": occurred_at,
        "data": msgspec.Raw(bytes(data)),
        "instance": instance,
        "run": None if pipeline is None else run,
        "caused_by": caused_by,
    }
    found = {name: value for name, value in head.items() if value is not None}
    return found if schema_version == 1 else found | {"schema_version": schema_version}


def _bodies(packed: bytes) -> bytes | None:
    """Return the bodies behind a batch's events, or those that lie within them."""
    inflate = zlib.decompressobj()
    heads = inflate.decompress(packed)
    if inflate.unused_data:
        return inflate.unused_data
    found = [each.get("body") for each in _maps(heads)]
    return zlib.compress(msgspec.msgpack.encode(found), 1) if any(found) else None


def _maps(heads: bytes) -> Iterator[dict[str, msgspec.Raw]]:
    yield from msgspec.msgpack.decode(heads, type=list[dict[str, msgspec.Raw]])


def key() -> models.CompositePrimaryKey:
    return models.CompositePrimaryKey(
        "stream",
        "sequence",
        "day",
        blank=True,
        editable=False,
        primary_key=True,
        serialize=False,
    )


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0012_days")]

    operations = [
        migrations.RunSQL(
            STREAM,
            state_operations=[
                migrations.AddField("stream", "id", models.IntegerField(unique=True)),
            ],
        ),
        migrations.RunSQL(ASIDE),
        migrations.RunSQL(
            EVENT,
            state_operations=[
                migrations.DeleteModel("Event"),
                migrations.CreateModel(
                    name="Event",
                    fields=[
                        ("pk", key()),
                        ("stream", models.IntegerField()),
                        ("day", models.DateField()),
                        ("sequence", models.BigIntegerField()),
                        ("occurred_at", models.DateTimeField()),
                        ("place", models.IntegerField()),
                        ("type", models.IntegerField()),
                        ("task", models.UUIDField(null=True)),
                        ("cause", models.BigIntegerField(null=True)),
                        ("count", models.BigIntegerField(null=True)),
                        ("pipeline", models.IntegerField(null=True)),
                        ("stage", models.IntegerField(null=True)),
                        ("exception_class", models.IntegerField(null=True)),
                        ("command", models.UUIDField(null=True)),
                        ("actor", models.TextField(null=True)),
                    ],
                    options={"db_table": "event"},
                ),
            ],
        ),
        migrations.RunSQL(
            BATCH,
            state_operations=[
                migrations.DeleteModel("EventBody"),
                migrations.CreateModel(
                    name="Batch",
                    fields=[
                        ("pk", key()),
                        ("stream", models.IntegerField()),
                        ("sequence", models.BigIntegerField()),
                        ("day", models.DateField()),
                        ("count", models.IntegerField()),
                        ("id", models.UUIDField()),
                        ("received_at", models.DateTimeField()),
                        ("heads", models.BinaryField()),
                        ("bodies", models.BinaryField(null=True)),
                    ],
                    options={"db_table": "batch"},
                ),
            ],
        ),
        *[migrations.RunSQL(GUARD.format(table=table)) for table in GUARDED],
        migrations.RunSQL(ENSURE_PARTITIONS),
        migrations.RunPython(carry_over),
        migrations.RunSQL(ROWS),
        migrations.RunSQL(DROP_DAYS),
        migrations.RunSQL(ERASE_BODY),
        migrations.RunSQL(GRANT),
    ]
