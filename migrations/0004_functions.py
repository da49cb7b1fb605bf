"""Create the functions that run as the owner: partitions, retention, erasure."""

from __future__ import annotations

from django.db import migrations

# The time in a batch id. Ids of UUID versions without a time are never forgotten.
BATCH_DATES = """
CREATE FUNCTION arrester_first_batch(of_day date) RETURNS uuid
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT (lpad(to_hex((extract(epoch FROM of_day) * 1000)::bigint), 12, '0')
        || repeat('0', 20))::uuid
$$;
CREATE FUNCTION arrester_is_dated(batch uuid) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT substr(batch::text, 15, 1) IN ('7', '8')
$$;
"""
# The lock order batch_seen, event, batch is the one of an append.
# A day whose rows are already in the default partition of event or batch stays there. Ids in
# batch_seen_default move into the new partition.
ENSURE_PARTITIONS = """
CREATE FUNCTION arrester_ensure_partitions(first date, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = public, pg_temp
    SET lock_timeout = '5s'
    AS $$
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
# Days that no base covers are never dropped, nor are today and yesterday. A base is valid if its
# position exists in the log and the application's state is stored at it.
DROP_DAYS = """
CREATE FUNCTION arrester_days_due(before date, batches_before date) RETURNS TABLE(name text)
    LANGUAGE sql STABLE
    SET search_path = public, pg_temp
    AS $$
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhrelid::regclass::text ~ '_[0-9]{8}$'
        AND to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD')
            < CASE WHEN inhparent = 'batch_seen'::regclass THEN batches_before ELSE before END
        AND inhparent IN ('batch_seen'::regclass, 'event'::regclass, 'batch'::regclass)
$$;
CREATE FUNCTION arrester_drop_days(before date, batches_before date)
    RETURNS TABLE (partitions integer, bytes bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = public, pg_temp
    SET lock_timeout = '5s'
    AS $$
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
    -- Rows of days without a partition. If no other rows remain, TRUNCATE frees the disk space.
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
# Delete states that a newer base replaces, and old chart buckets. The key of a bucket is a list
# that starts with its time.
FORGET = """
CREATE FUNCTION arrester_forget_old_states() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = public, pg_temp
    AS $$
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
    -- States that a newer base replaces, and snapshots before a base.
    DELETE FROM base_state AS old USING base_state AS newer
    WHERE newer.application = old.application AND newer.kind = old.kind AND newer.key = old.key
        AND newer.position > old.position;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    -- A 'null' state hides an older row of its key, so it stays while that row exists.
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
CREATE FUNCTION arrester_forget_buckets(of_application text, before timestamptz) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = public, pg_temp
    AS $$
DECLARE
    forgotten integer;
BEGIN
    IF before > now() - interval '399 days' THEN
        RAISE EXCEPTION 'buckets of the last 399 days are not forgotten';
    END IF;
    DELETE FROM base_state WHERE application = of_application
        AND CASE WHEN kind IN ('minute_count', 'hour_count', 'held_change')
            THEN (key::json ->> 0)::timestamptz < before ELSE false END;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
"""
# Not SECURITY DEFINER: only the owner may disable the append-only trigger.
ERASE_BODY = """
CREATE FUNCTION arrester_erase_body(
    of_stream integer, first bigint, of_day date, replacement bytea
) RETURNS text
    LANGUAGE plpgsql
    SET search_path = public, pg_temp
    SET lock_timeout = '5s'
    AS $$
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
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0003_service"),
    ]

    operations = [
        migrations.RunSQL(BATCH_DATES),
        migrations.RunSQL(ENSURE_PARTITIONS),
        migrations.RunSQL("SELECT arrester_ensure_partitions((now() AT TIME ZONE 'UTC')::date, 8)"),
        migrations.RunSQL(DROP_DAYS),
        migrations.RunSQL(FORGET),
        migrations.RunSQL(ERASE_BODY),
    ]
