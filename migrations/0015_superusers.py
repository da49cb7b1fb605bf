"""Let only the owner of the tables make superusers."""

from __future__ import annotations

from django.db import migrations

# The role of an account is checked by the application, which grants roles. A superuser is made
# outside of it. One role may own and use the tables: it makes superusers, too.
CREATE = """
CREATE FUNCTION arrester_refuse_superuser() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    table_owner oid;
BEGIN
    SELECT relowner INTO table_owner FROM pg_class WHERE oid = TG_RELID;
    IF pg_has_role(current_user, table_owner, 'USAGE') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'role % cannot make a superuser: set DATABASE_URL to the value of'
        ' MIGRATE_DATABASE_URL for this command', current_user
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER no_new_superuser BEFORE INSERT ON auth_user
    FOR EACH ROW WHEN (NEW.is_superuser) EXECUTE FUNCTION arrester_refuse_superuser();
CREATE TRIGGER no_superuser BEFORE UPDATE ON auth_user
    FOR EACH ROW WHEN (NEW.is_superuser AND NOT OLD.is_superuser)
    EXECUTE FUNCTION arrester_refuse_superuser();
"""
DROP = """
DROP TRIGGER no_new_superuser ON auth_user;
DROP TRIGGER no_superuser ON auth_user;
DROP FUNCTION arrester_refuse_superuser;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("controlplane", "0014_audit_chain"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [migrations.RunSQL(CREATE, DROP)]
