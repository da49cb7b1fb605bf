"""What a batch tells stands in its row, beside which only bodies are kept apart: a page of events
that came in batches of their own reads a block for each, instead of four."""

from __future__ import annotations

from django.db import migrations

# As much as fits into a block; a partitioned table itself has no such setting.
SO_FAR = """
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'batch'::regclass
    LOOP
        EXECUTE format('ALTER TABLE %s SET (toast_tuple_target = 8160)', part);
    END LOOP;
END
$$;
"""
# A statement that names a partition fires the partition's own triggers only, so each has one.
# A day of ours with rows in the default partition stays there, and is dropped from there.
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
            CONTINUE WHEN late AND parent <> 'batch_seen';
            IF late THEN
                LOCK TABLE batch_seen IN ACCESS EXCLUSIVE MODE;
                EXECUTE format('CREATE TABLE %I (LIKE batch_seen)', name);
                ALTER TABLE batch_seen_default DISABLE TRIGGER append_only;
                EXECUTE format('WITH early AS (DELETE FROM batch_seen_default
                    WHERE batch >= %L AND batch < %L RETURNING *)
                    INSERT INTO %I SELECT * FROM early', low, high, name);
                ALTER TABLE batch_seen_default ENABLE TRIGGER append_only;
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                    parent, name, low, high);
            ELSE
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                    name, parent, low, high);
            END IF;
            EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I
                FOR EACH STATEMENT EXECUTE FUNCTION arrester_refuse_change()', name);
            IF parent = 'batch' THEN
                EXECUTE format('ALTER TABLE %I SET (toast_tuple_target = 8160)', name);
            END IF;
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0025_other_classes")]

    operations = [
        migrations.RunSQL(SO_FAR, migrations.RunSQL.noop),
        migrations.RunSQL(ENSURE_PARTITIONS, migrations.RunSQL.noop),
    ]
