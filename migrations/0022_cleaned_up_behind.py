"""A day is dropped without cleaning up behind its base: that needs no lock of the log, and it took
longer than all the rest, while folds waited."""

from __future__ import annotations

from django.db import migrations

DROP_DAYS = """
CREATE OR REPLACE FUNCTION arrester_drop_days(before date, batches_before date)
RETURNS TABLE (partitions integer, bytes bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    part record;
    uncovered text;
    parent text;
    overdue text;
    none_stay boolean;
    changed integer;
    forgotten boolean := false;
BEGIN
    IF greatest(before, batches_before) >= (now() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'today and yesterday are not dropped';
    END IF;
    partitions := 0;
    bytes := 0;
    IF NOT EXISTS (SELECT FROM arrester_days_due(before, batches_before))
        AND NOT EXISTS (SELECT FROM event_default WHERE day < before)
        AND NOT EXISTS (SELECT FROM batch_default WHERE day < before)
        AND NOT EXISTS (SELECT FROM batch_seen_default AS kept
            WHERE arrester_is_dated(kept.batch)
                AND kept.batch < arrester_first_batch(batches_before))
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
        forgotten := forgotten OR part.name LIKE 'batch_seen_%';
    END LOOP;
    -- Days that had no partition of their own. Where no other has rows there, the disk comes back.
    FOREACH parent IN ARRAY ARRAY['event', 'batch', 'batch_seen'] LOOP
        IF parent = 'batch_seen' THEN
            overdue := format('arrester_is_dated(batch) AND batch < %L',
                arrester_first_batch(batches_before));
        ELSE
            overdue := format('day < %L', before);
        END IF;
        EXECUTE format('ALTER TABLE %I DISABLE TRIGGER append_only', parent || '_default');
        EXECUTE format('SELECT NOT EXISTS (SELECT FROM %I WHERE (%s) IS NOT TRUE)'
            ' AND EXISTS (SELECT FROM %I)', parent || '_default', overdue, parent || '_default')
            INTO none_stay;
        IF none_stay THEN
            bytes := bytes + pg_total_relation_size((parent || '_default')::regclass);
            EXECUTE format('TRUNCATE %I', parent || '_default');
            changed := 1;
        ELSE
            EXECUTE format('DELETE FROM %I WHERE %s', parent || '_default', overdue);
            GET DIAGNOSTICS changed = ROW_COUNT;
        END IF;
        EXECUTE format('ALTER TABLE %I ENABLE TRIGGER append_only', parent || '_default');
        forgotten := forgotten OR (parent = 'batch_seen' AND changed > 0);
    END LOOP;
    IF forgotten THEN
        INSERT INTO ids_kept (id, since) VALUES (1, batches_before)
        ON CONFLICT (id) DO UPDATE SET since = greatest(ids_kept.since, excluded.since);
    END IF;
    RETURN NEXT;
END
$$;
"""
FORGET_OLD_STATES = """
CREATE FUNCTION arrester_forget_old_states() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    changed integer;
    forgotten integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM base GROUP BY application HAVING count(*) > 1)
        AND NOT EXISTS (SELECT FROM base CROSS JOIN LATERAL (SELECT FROM snapshot
            WHERE snapshot.application = base.application AND snapshot.position <= base.position
            LIMIT 1) AS old)
    THEN
        RETURN 0;
    END IF;
    -- What a newer base says, and what no longer can be asked for.
    DELETE FROM base_state AS old USING base_state AS newer
    WHERE newer.application = old.application AND newer.kind = old.kind AND newer.key = old.key
        AND newer.position > old.position;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    -- One of a base that was made meanwhile stands in for a row that is still there.
    DELETE FROM base_state AS gone WHERE gone.state = 'null' AND NOT EXISTS (
        SELECT FROM base_state AS old WHERE old.application = gone.application
            AND old.kind = gone.kind AND old.key = gone.key AND old.position < gone.position);
    GET DIAGNOSTICS changed = ROW_COUNT;
    forgotten := forgotten + changed;
    DELETE FROM base AS old USING base AS newer
    WHERE newer.application = old.application AND newer.position > old.position;
    DELETE FROM snapshot USING base
    WHERE snapshot.application = base.application AND snapshot.position <= base.position;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN forgotten + changed;
END
$$;
REVOKE EXECUTE ON FUNCTION arrester_forget_old_states FROM PUBLIC;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT EXECUTE ON FUNCTION arrester_forget_old_states TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0021_found_by")]

    operations = [
        migrations.RunSQL(DROP_DAYS, migrations.RunSQL.noop),
        migrations.RunSQL(FORGET_OLD_STATES, migrations.RunSQL.noop),
    ]
