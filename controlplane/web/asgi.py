"""What uvicorn serves."""

from __future__ import annotations

import gc
import os

from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "arrester.controlplane.settings")
# Requests come by the second, and to connect takes longer than most of what they ask.
settings.DATABASES["default"]["ENGINE"] = "arrester.controlplane.web.connection_pool"
application = get_asgi_application()
# What is loaded by now stays for good: no collection has to look at it again.
gc.collect()
gc.freeze()
