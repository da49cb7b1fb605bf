"""The log: streams, events in daily partitions, batches seen, what is kept aside."""

from __future__ import annotations

from django.db import migrations, models

EVENT = """
CREATE TABLE event (
    application text NOT NULL,
    sequence bigint NOT NULL,
    day date NOT NULL,
    received_at timestamptz NOT NULL,
    occurred_at timestamptz NOT NULL,
    type text NOT NULL,
    schema_version smallint NOT NULL,
    batch uuid NOT NULL,
    instance uuid,
    pipeline text,
    checkpoint text,
    epoch bigint,
    caused_by uuid,
    task uuid,
    stage text,
    exception_class text,
    fingerprint text,
    count bigint,
    command uuid,
    data bytea NOT NULL,
    PRIMARY KEY (application, sequence, day)
) PARTITION BY RANGE (day);
CREATE INDEX event_of_task ON event (task, sequence) WHERE task IS NOT NULL;
CREATE INDEX event_of_group ON event (application, fingerprint, occurred_at, sequence)
    WHERE count IS NOT NULL;
CREATE INDEX event_failures ON event (application, occurred_at, sequence) WHERE count IS NOT NULL;
CREATE INDEX event_of_command ON event (command, sequence) WHERE command IS NOT NULL;
CREATE TABLE event_default PARTITION OF event DEFAULT;
"""

EVENT_BODY = """
CREATE TABLE event_body (
    application text NOT NULL,
    sequence bigint NOT NULL,
    day date NOT NULL,
    count integer NOT NULL,
    packed bytea NOT NULL,
    PRIMARY KEY (application, sequence, day)
) PARTITION BY RANGE (day);
-- It comes compressed: trying again would cost and gain nothing.
ALTER TABLE event_body ALTER COLUMN packed SET STORAGE EXTERNAL;
CREATE TABLE event_body_default PARTITION OF event_body DEFAULT;
"""

APPEND_ONLY = """
CREATE FUNCTION arrester_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: the log is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
"""

GUARD = """
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change();
"""

# A statement that names a partition fires the partition's own triggers only, so each has one.
# A day with rows in the default partition stays there: its own one could not be attached.
ENSURE_PARTITIONS = """
CREATE FUNCTION arrester_ensure_partitions(first date, days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    parent text;
    name text;
    of_day date;
    late boolean;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('arrester_ensure_partitions'));
    FOREACH parent IN ARRAY ARRAY['event', 'event_body'] LOOP
        FOR number IN 0 .. days - 1 LOOP
            of_day := first + number;
            name := parent || '_' || to_char(of_day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass(name) IS NOT NULL;
            EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE day = %L)',
                parent || '_default', of_day) INTO late;
            CONTINUE WHEN late;
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                name, parent, of_day, of_day + 1);
            EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I
                FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change()', name);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
SELECT arrester_ensure_partitions((now() AT TIME ZONE 'UTC')::date, 8);
"""

GUARDED = ["event", "event_default", "event_body", "event_body_default", "batch_seen"]


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Stream",
            fields=[
                ("application", models.TextField(primary_key=True, serialize=False)),
                ("cursor", models.TextField()),
                ("generation", models.IntegerField()),
                ("sequence", models.BigIntegerField()),
            ],
            options={
                "db_table": "stream",
            },
        ),
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
            ],
            options={
                "db_table": "quarantine",
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
            name="Sighting",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
            ],
            options={
                "db_table": "sighting",
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(EVENT, "DROP TABLE event")],
            state_operations=[
                migrations.CreateModel(
                    name="Event",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "application",
                                "sequence",
                                "day",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("application", models.TextField()),
                        ("sequence", models.BigIntegerField()),
                        ("day", models.DateField()),
                        ("received_at", models.DateTimeField()),
                        ("occurred_at", models.DateTimeField()),
                        ("type", models.TextField()),
                        ("schema_version", models.SmallIntegerField()),
                        ("batch", models.UUIDField()),
                        ("instance", models.UUIDField(null=True)),
                        ("pipeline", models.TextField(null=True)),
                        ("checkpoint", models.TextField(null=True)),
                        ("epoch", models.BigIntegerField(null=True)),
                        ("caused_by", models.UUIDField(null=True)),
                        ("task", models.UUIDField(null=True)),
                        ("stage", models.TextField(null=True)),
                        ("exception_class", models.TextField(null=True)),
                        ("fingerprint", models.TextField(null=True)),
                        ("count", models.BigIntegerField(null=True)),
                        ("command", models.UUIDField(null=True)),
                        ("data", models.BinaryField()),
                    ],
                    options={
                        "db_table": "event",
                    },
                ),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(EVENT_BODY, "DROP TABLE event_body")],
            state_operations=[
                migrations.CreateModel(
                    name="EventBody",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "application",
                                "sequence",
                                "day",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("application", models.TextField()),
                        ("sequence", models.BigIntegerField()),
                        ("day", models.DateField()),
                        ("count", models.IntegerField()),
                        ("packed", models.BinaryField()),
                    ],
                    options={
                        "db_table": "event_body",
                    },
                ),
            ],
        ),
        migrations.RunSQL(APPEND_ONLY, "DROP FUNCTION arrester_refuse_change CASCADE"),
        *[
            migrations.RunSQL(
                GUARD.format(table=table), f"DROP TRIGGER IF EXISTS append_only ON {table}"
            )
            for table in GUARDED
        ],
        migrations.RunSQL(ENSURE_PARTITIONS, "DROP FUNCTION arrester_ensure_partitions"),
    ]
