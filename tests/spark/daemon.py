"""Spark's daemon of Python workers, with the libraries that each worker imports.

A failed job ends its workers, and each new one is a fork of the daemon: it finds the libraries
imported, and the collection of garbage after each task leaves them alone.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

if __name__ == "__main__":
    for library in ("pandas", "pyarrow", "pyspark.worker"):
        import_module(library)
    gc.freeze()
    manager()
