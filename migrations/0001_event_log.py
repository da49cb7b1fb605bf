"""Create the log: streams, batches of events in daily partitions, quarantine, snapshots."""

from __future__ import annotations

import hashlib

from django.db import migrations, models


def key(name: str) -> int:
    """Return the number of an event type, as `store.column_values` computes it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], signed=True)


def keys(*names: str) -> str:
    return ", ".join(str(key(name)) for name in names)


DEAD_LETTERS = key("RecordsDeadLettered")
COUNTERS = keys("RetriesCounted", "RecordsHeld", "RecordsDeadLettered")
GROUP_ACTIONS = keys(
    "ErrorGroupResolved", "ErrorGroupReopened", "ErrorGroupMuted", "ErrorGroupUnmuted", "NoteAdded"
)
# The columns that lists search by. There is no primary key: the batch that contains a position
# guarantees that it exists once.
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
CREATE INDEX event_of_task ON event (task, sequence)
    INCLUDE (cause, occurred_at, stream, day, place, stage, count) WHERE task IS NOT NULL;
CREATE INDEX event_of_cause ON event (cause, occurred_at, sequence)
    INCLUDE (stream, day, place, pipeline) WHERE count IS NOT NULL;
CREATE INDEX event_failures ON event (stream, occurred_at, sequence) WHERE count IS NOT NULL;
CREATE INDEX event_of_command ON event (command, sequence) WHERE command IS NOT NULL;
CREATE INDEX event_of_people ON event (occurred_at) WHERE actor IS NOT NULL;
CREATE INDEX event_dead_letters ON event (occurred_at) WHERE type = {DEAD_LETTERS};
CREATE INDEX event_acts_on_group ON event (cause, sequence) WHERE type IN ({GROUP_ACTIONS});
-- Events that change a task's state; most events only add to a counter.
CREATE INDEX event_turns ON event (stream, sequence)
    WHERE count IS NULL AND type NOT IN ({COUNTERS});
CREATE INDEX event_turns_of_task ON event (task, sequence)
    WHERE task IS NOT NULL AND count IS NULL AND type NOT IN ({COUNTERS});
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
-- Both columns arrive compressed: a second compression costs time and saves nothing.
ALTER TABLE batch ALTER COLUMN heads SET STORAGE EXTERNAL;
ALTER TABLE batch ALTER COLUMN bodies SET STORAGE EXTERNAL;
-- Keep heads of up to one block in the row; only bodies move to the TOAST table. A partitioned
-- table has no such setting, so each partition gets it.
CREATE TABLE batch_default PARTITION OF batch DEFAULT WITH (toast_tuple_target = 8160);
"""
# Partitioned by the time in the batch id (UUIDv7), so that the key needs no other column.
BATCH_SEEN = """
CREATE TABLE batch_seen (
    application text NOT NULL,
    batch uuid NOT NULL,
    first_sequence bigint NOT NULL,
    count integer NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (application, batch)
) PARTITION BY RANGE (batch);
CREATE TABLE batch_seen_default PARTITION OF batch_seen DEFAULT;
"""
REFUSE_CHANGE = """
CREATE FUNCTION arrester_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: the log is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
"""
# A statement that names a partition fires only the triggers of that partition, so each has one.
APPEND_ONLY = "".join(
    f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
    " FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change();\n"
    for table in (
        *("event", "event_default", "batch", "batch_default"),
        *("batch_seen", "batch_seen_default"),
    )
)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Stream",
            fields=[
                ("application", models.TextField(primary_key=True, serialize=False)),
                ("id", models.IntegerField(unique=True)),
                ("cursor", models.TextField()),
                ("generation", models.IntegerField()),
                ("sequence", models.BigIntegerField()),
                ("received_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "stream",
            },
        ),
        migrations.RunSQL("ALTER TABLE stream ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY"),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(EVENT)],
            state_operations=[
                migrations.CreateModel(
                    name="Event",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "stream",
                                "sequence",
                                "day",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
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
                    options={
                        "db_table": "event",
                    },
                ),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(BATCH)],
            state_operations=[
                migrations.CreateModel(
                    name="Batch",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "stream",
                                "sequence",
                                "day",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("stream", models.IntegerField()),
                        ("sequence", models.BigIntegerField()),
                        ("day", models.DateField()),
                        ("count", models.IntegerField()),
                        ("id", models.UUIDField()),
                        ("received_at", models.DateTimeField()),
                        ("heads", models.BinaryField()),
                        ("bodies", models.BinaryField(null=True)),
                    ],
                    options={
                        "db_table": "batch",
                    },
                ),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(BATCH_SEEN)],
            state_operations=[
                migrations.CreateModel(
                    name="BatchSeen",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "application",
                                "batch",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("application", models.TextField()),
                        ("batch", models.UUIDField()),
                        ("first_sequence", models.BigIntegerField()),
                        ("count", models.IntegerField()),
                        ("received_at", models.DateTimeField()),
                    ],
                    options={
                        "db_table": "batch_seen",
                    },
                ),
            ],
        ),
        migrations.RunSQL(REFUSE_CHANGE),
        migrations.RunSQL(APPEND_ONLY),
        migrations.CreateModel(
            name="IdsKept",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("since", models.DateField()),
            ],
            options={
                "db_table": "ids_kept",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="ids_kept_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Quarantine",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("application", models.TextField()),
                ("entry", models.TextField()),
                ("batch", models.UUIDField(null=True)),
                ("index", models.IntegerField(null=True)),
                ("reason", models.TextField()),
                ("raw", models.BinaryField()),
                ("digest", models.TextField()),
                ("received_at", models.DateTimeField()),
                ("requeued_at", models.DateTimeField(null=True)),
                ("too_old", models.BooleanField(db_default=False, default=False)),
                ("dismissed_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "quarantine",
                "indexes": [
                    models.Index(
                        models.F("application"),
                        condition=models.Q(
                            ("dismissed_at", None), ("requeued_at", None), ("too_old", False)
                        ),
                        name="not_understood",
                    ),
                    models.Index(
                        models.F("received_at"),
                        models.F("application"),
                        condition=models.Q(
                            ("dismissed_at", None), ("requeued_at", None), ("too_old", True)
                        ),
                        name="too_old_lately",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("application", "entry", "index", "digest"),
                        name="kept_aside_once",
                        nulls_distinct=False,
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Snapshot",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "kind",
                        "key",
                        "position",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("kind", models.TextField()),
                ("key", models.TextField()),
                ("position", models.BigIntegerField()),
                ("state", models.TextField()),
            ],
            options={
                "db_table": "snapshot",
                "indexes": [
                    models.Index(
                        models.F("application"), models.F("position"), name="snapshot_position"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Base",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "position",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("position", models.BigIntegerField()),
                ("received_at", models.DateTimeField()),
                ("made_at", models.DateTimeField()),
            ],
            options={
                "db_table": "base",
            },
        ),
        migrations.CreateModel(
            name="BaseState",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "kind",
                        "key",
                        "position",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("kind", models.TextField()),
                ("key", models.TextField()),
                ("position", models.BigIntegerField()),
                ("state", models.TextField()),
            ],
            options={
                "db_table": "base_state",
            },
        ),
    ]
