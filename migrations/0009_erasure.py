"""Erasure: the owner alone may put a batch without one body in the place of that batch's bodies."""

from __future__ import annotations

from django.db import migrations

# Not SECURITY DEFINER: it can do no more than whoever calls it, and nobody but the owner may
# switch the guard off.
ERASE_BODY = """
CREATE FUNCTION arrester_erase_body(
    of_application text, first bigint, of_day date, replacement bytea
) RETURNS text
LANGUAGE plpgsql SET search_path = public, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    part text;
    changed integer;
BEGIN
    SELECT tableoid::regclass::text INTO STRICT part FROM event_body
        WHERE application = of_application AND sequence = first AND day = of_day;
    EXECUTE format('ALTER TABLE %s DISABLE TRIGGER append_only', part);
    EXECUTE format('UPDATE %s SET packed = $1 WHERE application = $2 AND sequence = $3
        AND day = $4', part) USING replacement, of_application, first, of_day;
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


class Migration(migrations.Migration):
    dependencies = [("controlplane", "0008_retention")]

    operations = [migrations.RunSQL(ERASE_BODY, "DROP FUNCTION arrester_erase_body")]
