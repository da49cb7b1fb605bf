#!/usr/bin/env python
"""Run a management command from a clone, as `arrester` does where the package is installed."""

from __future__ import annotations

from arrester.__main__ import main

if __name__ == "__main__":
    main()
