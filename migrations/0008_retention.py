"""Retention: batches seen by day of their id, days that are dropped, rows beside the live views."""

from __future__ import annotations

from django.db import migrations, models

# An id begins with the milliseconds of its time (UUIDv7, UUIDv8), so a day is a range of ids, and
# a key that the partitions share is unique among all of them.
BATCH_SEEN = """
CREATE FUNCTION arrester_first_batch(of_day date) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM of_day) * 1000)::bigint), 12, '0')
        || repeat('0', 20))::uuid
$$;
ALTER TABLE batch_seen RENAME TO batch_seen_whole;
ALTER TABLE batch_seen_whole DROP CONSTRAINT batch_seen_pkey;
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
GUARD = """
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change();
"""
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
    FOREACH parent IN ARRAY ARRAY['event', 'event_body', 'batch_seen'] LOOP
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
"""
# The days that the rows come from have partitions, so that they can be dropped one day.
REFILL = """
SELECT arrester_ensure_partitions((now() AT TIME ZONE 'UTC')::date, 8);
SELECT arrester_ensure_partitions(of_day::date, 1) FROM generate_series(
    (SELECT greatest(min(received_at), now() - interval '31 days') FROM batch_seen_whole
        HAVING count(*) > 0),
    now(), interval '1 day') AS of_day;
INSERT INTO batch_seen SELECT application, batch, first_sequence, count, received_at
    FROM batch_seen_whole;
DROP TABLE batch_seen_whole;
"""

# What no base covers cannot be dropped, whoever asks; nor can today.
DROP_DAYS = """
CREATE FUNCTION arrester_drop_days(before date, batches_before date)
RETURNS TABLE (partitions integer, bytes bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    part record;
    uncovered text;
    parent text;
BEGIN
    IF greatest(before, batches_before) > (now() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'today is not dropped';
    END IF;
    LOCK TABLE event, event_body, batch_seen IN ACCESS EXCLUSIVE MODE;
    SELECT stream.application INTO uncovered FROM stream WHERE EXISTS (
        SELECT FROM event WHERE event.application = stream.application AND event.day < before
            AND event.sequence > coalesce((SELECT max(base.position) FROM base
                WHERE base.application = stream.application), 0)
    ) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'no base covers what % had before %', uncovered, before;
    END IF;
    partitions := 0;
    bytes := 0;
    FOR part IN
        SELECT inhrelid::regclass AS name, inhparent::regclass::text AS parent,
            to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') AS of_day
        FROM pg_inherits
        WHERE inhparent IN ('event'::regclass, 'event_body'::regclass, 'batch_seen'::regclass)
            AND inhrelid::regclass::text ~ '_[0-9]{8}$'
    LOOP
        CONTINUE WHEN part.of_day >= CASE part.parent WHEN 'batch_seen' THEN batches_before
            ELSE before END;
        bytes := bytes + pg_total_relation_size(part.name);
        EXECUTE format('DROP TABLE %s', part.name);
        partitions := partitions + 1;
    END LOOP;
    -- Days that had no partition of their own.
    FOREACH parent IN ARRAY ARRAY['event_default', 'event_body_default'] LOOP
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
GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT SELECT, INSERT ON batch_seen TO arrester_app;
        GRANT SELECT, INSERT, UPDATE, DELETE ON shadow_row TO arrester_app;
        REVOKE EXECUTE ON FUNCTION arrester_drop_days FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION arrester_drop_days TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0007_accounts")]

    operations = [
        migrations.CreateModel(
            name="ShadowRow",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "application",
                        "view",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("application", models.TextField()),
                ("view", models.TextField()),
                ("key", models.TextField()),
                ("row", models.TextField()),
            ],
            options={
                "db_table": "shadow_row",
            },
        ),
        # It is made again from the log: nothing of it has to outlive a crash.
        migrations.RunSQL("ALTER TABLE shadow_row SET UNLOGGED", migrations.RunSQL.noop),
        migrations.RunSQL(BATCH_SEEN, migrations.RunSQL.noop),
        *[
            migrations.RunSQL(GUARD.format(table=table), migrations.RunSQL.noop)
            for table in ("batch_seen", "batch_seen_default")
        ],
        migrations.RunSQL(ENSURE_PARTITIONS, migrations.RunSQL.noop),
        migrations.RunSQL(REFILL, migrations.RunSQL.noop),
        migrations.RunSQL(DROP_DAYS, "DROP FUNCTION arrester_drop_days"),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]
