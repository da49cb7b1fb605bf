#!/usr/bin/env python
"""Run Django's command line with our settings."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "arrester.controlplane.settings")
    from django.core.management import execute_from_command_line
    from django.db import OperationalError
    from redis.exceptions import RedisError

    try:
        execute_from_command_line(sys.argv)
    except (OperationalError, RedisError) as error:
        if "--traceback" in sys.argv:
            raise
        server = "Redis" if isinstance(error, RedisError) else "PostgreSQL"
        why = str(error).partition("\n")[0]
        sys.exit(f"{server} does not answer as it should: {why}\nIs it running, is its URL right?")


if __name__ == "__main__":
    main()
