"""A base that stays where it is, since its application is silent, forgets old buckets too."""

from __future__ import annotations

from django.db import migrations

# A key is a list that begins with the bucket's time; those of states are not.
FORGET_BUCKETS = """
CREATE FUNCTION arrester_forget_buckets(of_application text, before timestamptz) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
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
REVOKE EXECUTE ON FUNCTION arrester_forget_buckets FROM PUBLIC;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        GRANT EXECUTE ON FUNCTION arrester_forget_buckets TO arrester_app;
    END IF;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0019_early_ids")]

    operations = [migrations.RunSQL(FORGET_BUCKETS)]
