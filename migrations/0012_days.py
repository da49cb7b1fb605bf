"""Days are made and dropped in the folds' order of locks, and only what a true base covers; why
retention is refused is kept."""

from __future__ import annotations

from django.db import migrations, models

# A fold takes batch_seen, then event, then event_body: so does whoever changes their partitions.
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
    FOREACH parent IN ARRAY ARRAY['batch_seen', 'event', 'event_body'] LOOP
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

# What no base covers cannot be dropped, whoever asks; nor can today and yesterday. A base is one
# that stands at an event of the log and has the application's state there.
DROP_DAYS = """
CREATE FUNCTION arrester_days_due(before date, batches_before date)
RETURNS TABLE (name text) LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhrelid::regclass::text ~ '_[0-9]{8}$'
        AND to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD')
            < CASE WHEN inhparent = 'batch_seen'::regclass THEN batches_before ELSE before END
        AND inhparent IN ('batch_seen'::regclass, 'event'::regclass, 'event_body'::regclass)
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
        AND NOT EXISTS (SELECT FROM event_body_default WHERE day < before)
    THEN
        RETURN NEXT;
        RETURN;
    END IF;
    LOCK TABLE batch_seen, event, event_body IN ACCESS EXCLUSIVE MODE;
    SELECT stream.application INTO uncovered
    FROM stream LEFT JOIN LATERAL (
        SELECT base.position, base.received_at FROM base
        WHERE base.application = stream.application ORDER BY base.position DESC LIMIT 1
    ) AS newest ON true
    WHERE EXISTS (
        SELECT FROM event WHERE event.application = stream.application AND event.day < before
            AND event.sequence > coalesce(newest.position, 0)
    ) OR newest.position > stream.sequence OR (
        EXISTS (SELECT FROM event
            WHERE event.application = stream.application AND event.day < before)
        AND NOT EXISTS (SELECT FROM event
            WHERE event.application = stream.application AND event.sequence = newest.position
                AND event.received_at = newest.received_at)
    ) OR (
        newest.position IS NOT NULL AND NOT EXISTS (SELECT FROM base_state
            WHERE base_state.application = stream.application
                AND base_state.kind = 'application' AND base_state.key = stream.application
                AND base_state.position = newest.position)
    )
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
        GRANT SELECT, INSERT, UPDATE, DELETE ON retention_refusal TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0011_quarantine")]

    operations = [
        migrations.CreateModel(
            name="RetentionRefusal",
            fields=[
                ("application", models.TextField(primary_key=True, serialize=False)),
                ("since", models.DateTimeField()),
                ("reason", models.TextField()),
            ],
            options={
                "db_table": "retention_refusal",
            },
        ),
        migrations.RunSQL(ENSURE_PARTITIONS, migrations.RunSQL.noop),
        migrations.RunSQL(DROP_DAYS, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]
