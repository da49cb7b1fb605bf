"""What uvicorn serves."""

from __future__ import annotations

import gc
import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
application = get_asgi_application()
# What is loaded by now stays for good: no collection has to look at it again.
gc.collect()
gc.freeze()
