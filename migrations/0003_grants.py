"""What the application's role may do, where there is one: the log only grows."""

from __future__ import annotations

from django.db import migrations

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
    REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM arrester_app;
    REVOKE UPDATE, DELETE ON event, event_body, batch_seen FROM arrester_app;
    -- Reading and appending through the parent needs no right on a partition.
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits
        WHERE inhparent IN ('event'::regclass, 'event_body'::regclass)
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM arrester_app', part);
    END LOOP;
    REVOKE EXECUTE ON FUNCTION arrester_ensure_partitions FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION arrester_ensure_partitions TO arrester_app;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0002_views"),
        # Their tables are granted too, so they have to be there.
        ("auth", "0012_alter_user_first_name_max_length"),
        ("authtoken", "0004_alter_tokenproxy_options"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("sessions", "0001_initial"),
    ]

    operations = [migrations.RunSQL(GRANT, migrations.RunSQL.noop)]
