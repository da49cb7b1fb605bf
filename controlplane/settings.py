"""Django settings; environment variables are read in `arrester.controlplane.env`."""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from arrester.controlplane import embedded
from arrester.controlplane.env import Environment, InvalidSetting

ENVIRONMENT = Environment.read(os.environ)
# The default servers are the embedded ones of ARRESTER_HOME, whether or not they run.
try:
    _EMBEDDED = embedded.known_urls(ENVIRONMENT.home)
except embedded.EmbeddedError as error:
    raise SystemExit(str(error)) from None

DATABASE_URL = ENVIRONMENT.database_url or _EMBEDDED.database
MIGRATE_DATABASE_URL = ENVIRONMENT.migrate_database_url or (
    ENVIRONMENT.database_url or _EMBEDDED.migrate_database
)
REDIS_URL = ENVIRONMENT.redis_url or _EMBEDDED.redis
#: Celery's queues: another database of Redis, which agents cannot select, if it is set.
BROKER_URL = ENVIRONMENT.broker_url or (ENVIRONMENT.redis_url or _EMBEDDED.broker)
#: All work can wait. The web process waits less: `arrester.controlplane.web.redis_connections`.
REDIS_OPTIONS: dict[str, Any] = {"socket_timeout": 5, "socket_connect_timeout": 2}


#: Detect a lost host within half a minute at both ends and release its locks; TCP's default is two
#: hours. Unix sockets ignore these options.
TCP = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
SESSION = " ".join(
    f"-c {name}={value}"
    for name, value in {
        # The statements are many and short: compiling one, or starting parallel workers for it,
        # costs more than running it.
        "jit": "off",
        "max_parallel_workers_per_gather": 0,
        # A process that is suspended in a transaction must not lock its stream for longer.
        "idle_in_transaction_session_timeout": "5min",
        **{name if name.startswith("tcp_") else f"tcp_{name}": each for name, each in TCP.items()},
    }.items()
)


def database_settings(name: str, url: str) -> dict[str, Any]:
    """Return the Django settings of the database at `url`, the value of variable `name`."""
    try:
        options = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise InvalidSetting(name, "…", f"a PostgreSQL URL ({str(error).strip()})") from None
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": options.pop("dbname", ""),
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": options.pop("host", ""),
        "PORT": options.pop("port", ""),
        # Under ASGI each request has its own thread, so a connection kept there would leak. The
        # web process keeps idle ones: `arrester.controlplane.web.connection_pool`.
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "connect_timeout": 5,
            "application_name": "arrester",
            # For `arrester.controlplane.store.prepared_statements`, from the sixth execution.
            "prepare_threshold": 5,
            **TCP,
            **options,
            "options": f"{SESSION} {options.get('options', '')}".rstrip(),
        },
    }


DATABASES = {"default": database_settings("DATABASE_URL", DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Only `controlplane` has models: one linear history of migrations.
MIGRATION_MODULES = {"controlplane": "arrester.migrations"}

SECRET_KEY = ENVIRONMENT.secret_key or embedded.known_secret_key(ENVIRONMENT.home)
DEBUG = ENVIRONMENT.debug
ALLOWED_HOSTS = ENVIRONMENT.allowed_hosts
CSRF_TRUSTED_ORIGINS = ENVIRONMENT.trusted_origins

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "arrester.controlplane",
    "arrester.dashboard",
]
MIDDLEWARE = [
    "arrester.controlplane.web.request_metrics.RequestMetrics",
    "django.middleware.security.SecurityMiddleware",
    "arrester.controlplane.web.middleware.Compression",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "arrester.controlplane.web.middleware.ResponseHeaders",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "arrester.controlplane.web.middleware.AllowedHosts",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "arrester.controlplane.urls"
ASGI_APPLICATION = "arrester.controlplane.web.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "arrester.dashboard.text.invisible.Templates",
        "NAME": "django",
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": [
                f"arrester.dashboard.templatetags.{name}"
                for name in ("charts", "events", "formats", "states")
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True


def static_digest() -> str:
    """Return a digest of all static files, for their URLs: browsers keep a file for years."""
    digest = hashlib.sha256(version("drf-spectacular-sidecar").encode())
    for path in sorted((Path(__file__).parent.parent / "dashboard" / "static").rglob("*.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


STATIC_URL = "static/" if DEBUG else f"static/{static_digest()}/"
# Serve files from the packages, so that `collectstatic` is not needed.
WHITENOISE_USE_FINDERS = True
if not DEBUG:
    WHITENOISE_IMMUTABLE_FILE_TEST = "."

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator")
]
SESSION_ENGINE = "arrester.controlplane.web.session_store"
SESSION_COOKIE_NAME = "arrester_session"
# The time since the last request of a person: `arrester.dashboard.permissions` extends it.
SESSION_COOKIE_AGE = ENVIRONMENT.session_hours * 3600
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = ENVIRONMENT.https
# Probes in the same network request these over plain HTTP.
SECURE_SSL_REDIRECT = ENVIRONMENT.https
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = 31_536_000 if ENVIRONMENT.https else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENVIRONMENT.https else None
X_FRAME_OPTIONS = "DENY"
# HSTS for subdomains and the preload list are decided by the owner of the domain.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        # The first one determines the WWW-Authenticate header of a 401.
        "arrester.dashboard.rest.authentication.RestTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "arrester.dashboard.rest.operations.Operation",
    "EXCEPTION_HANDLER": "arrester.dashboard.rest.problems.handle",
    "DEFAULT_PARSER_CLASSES": ["arrester.dashboard.rest.field_types.JsonParser"],
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Arrester",
    "DESCRIPTION": "The error control plane for PySpark.",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "arrester.dashboard.rest.descriptions.describe",
        "arrester.dashboard.rest.request_bodies.describe",
    ],
    "ENFORCE_NON_BLANK_FIELDS": True,
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["arrester.dashboard.rest.base.HasRole"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {
        "ApplicationStatus": "arrester.domain.state.states.ApplicationStatus",
        "CommandKind": "arrester.domain.events.CommandKind",
        "CommandStatus": "arrester.domain.state.states.CommandStatus",
        "DeadLetterFilterStatus": "arrester.controlplane.views.dead_letter_selection.STATUSES",
        "FailureScope": ["thread", "task"],
        "GroupAct": "arrester.domain.state.error_groups.GroupAct",
        "GroupStatus": "arrester.domain.state.states.GroupStatus",
        "InstanceStatus": "arrester.domain.state.states.InstanceStatus",
        "RecordOutcome": "arrester.controlplane.queries.RecordOutcome",
        "TaskStatus": "arrester.domain.state.states.TaskStatus",
        "TokenScope": ["read", "operate"],
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"},
    },
    "filters": {
        "refusals": {"()": "arrester.controlplane.web.log_filter.NoTraceOfRefusals"},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["refusals"],
        },
        "null": {"class": "logging.NullHandler"},
    },
    # What Apprise logs is the reason of a message that was not sent, which the server logs. For the
    # address of a webhook it logs an error: it has no service for it.
    "loggers": {"apprise": {"handlers": ["null"], "propagate": False}},
    "root": {"handlers": ["stderr"], "level": ENVIRONMENT.log_level},
}
