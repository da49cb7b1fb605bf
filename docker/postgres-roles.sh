#!/usr/bin/env bash
# Create the owner, which runs migrations, and the application's role, which they grant privileges.
set -euo pipefail

psql --set ON_ERROR_STOP=1 --username postgres --no-psqlrc --quiet \
    --set "owner_password=$ARRESTER_OWNER_PASSWORD" --set "app_password=$ARRESTER_APP_PASSWORD" <<'SQL'
CREATE ROLE arrester_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE arrester_app LOGIN PASSWORD :'app_password';
-- Sorted by code point, as in the tests: the order of a language differs between systems and their versions.
CREATE DATABASE arrester OWNER arrester_owner ENCODING 'UTF8' LOCALE_PROVIDER libc LC_COLLATE 'C' TEMPLATE template0;
REVOKE ALL ON DATABASE arrester FROM PUBLIC;
GRANT CONNECT ON DATABASE arrester TO arrester_app;
SQL
