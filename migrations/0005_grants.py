"""Grant the application's role what it needs: to append to the log, to change everything else."""

from __future__ import annotations

from django.db import migrations

REVOKE = """
REVOKE EXECUTE ON FUNCTION arrester_ensure_partitions, arrester_drop_days,
    arrester_forget_old_states, arrester_forget_buckets, arrester_erase_body FROM PUBLIC;
"""
# A server of its own may have no such role: then one role owns and uses the tables.
GRANT = """
DO $$
DECLARE
    part regclass;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'arrester_app') THEN
        RETURN;
    END IF;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO arrester_app;
    GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO arrester_app;
    REVOKE INSERT, UPDATE, DELETE ON django_migrations, ids_kept FROM arrester_app;
    REVOKE UPDATE, DELETE ON event, batch, batch_seen, base, base_state, account_change
        FROM arrester_app;
    REVOKE UPDATE ON snapshot FROM arrester_app;
    -- Reading and appending through the parent needs no privilege on a partition.
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits
        WHERE inhparent IN ('event'::regclass, 'batch'::regclass, 'batch_seen'::regclass)
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM arrester_app', part);
    END LOOP;
    GRANT EXECUTE ON FUNCTION arrester_ensure_partitions, arrester_drop_days,
        arrester_forget_old_states, arrester_forget_buckets TO arrester_app;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0004_functions"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("sessions", "0001_initial"),
    ]

    operations = [
        migrations.RunSQL(REVOKE),
        migrations.RunSQL(GRANT),
    ]
