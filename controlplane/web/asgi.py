"""The ASGI application that uvicorn serves."""

from __future__ import annotations

import gc
import os

from django.conf import settings
from django.core.asgi import get_asgi_application

from arrester.controlplane.redis import metric_sums
from arrester.controlplane.web import redis_connections
from arrester.controlplane.web.clients import Disconnects
from arrester.controlplane.web.login_queue import LoginQueue
from arrester.controlplane.web.request_limits import BodyLimits

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "arrester.controlplane.settings")
# Requests come every second, and a connect takes longer than most of their queries.
settings.DATABASES["default"]["ENGINE"] = "arrester.controlplane.web.connection_pool"
settings.REDIS_OPTIONS = redis_connections.options(settings.REDIS_URL)
_environment = settings.ENVIRONMENT
# With https there are proxies; unless it is configured, their number is not known.
_proxies = None if _environment.https and not _environment.proxies else _environment.proxies
application = Disconnects(BodyLimits(LoginQueue(get_asgi_application(), proxies=_proxies)))
metric_sums.flush_periodically()
# Modules loaded by now stay loaded: collections need not visit them.
gc.collect()
gc.freeze()
