"""The release of Python functions that the JVM calls.

PySpark keeps such a function as long as the JVM keeps the query, and a Python thread for each JVM
thread that called one. Without release, each replaced query would leak both.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from arrester.agents.stop_signal import BatchEnded, BatchStopped

_log = logging.getLogger("arrester.thread")

#: The IDs of released functions that the JVM still has.
_released: set[str] = set()


def release_callback(function: Callable[..., object], caller: threading.Thread | None) -> None:
    """Release a function that the JVM does not call any more.

    `caller` is the thread that py4j ran it in.
    """
    try:
        _remove_from_pool(function)
        _close_connection(caller)
    except Exception:  # private parts of py4j: another version may have other ones
        _log.debug("a query's callback stays until the JVM releases it", exc_info=True)


def _remove_from_pool(function: Callable[..., object]) -> None:
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    pool = gateway.gateway_property.pool
    for id, proxy in list(pool.dict.items()):
        if getattr(proxy, "func", None) is function:
            _released.add(id)
            del pool[id]


def _close_connection(caller: threading.Thread | None) -> None:
    """End py4j's thread for the JVM thread of an ended query."""
    server = getattr(getattr(caller, "_target", None), "__self__", None)
    connection = getattr(server, "socket", None)
    if caller is not threading.current_thread() and isinstance(connection, socket.socket):
        connection.shutdown(socket.SHUT_RDWR)


def _is_not_end_of_batch(record: logging.LogRecord) -> bool:
    exc = record.exc_info[1] if record.exc_info else None
    return not isinstance(exc, BatchEnded | BatchStopped)


def _is_not_about_released(record: logging.LogRecord) -> bool:
    id = record.getMessage().rpartition(" ")[2]
    if id not in _released:
        return True
    _released.discard(id)
    return False


# py4j logs an error for each exception that leaves a Python function. It warns when the JVM
# releases a function that was released here before.
logging.getLogger("py4j.clientserver").addFilter(_is_not_end_of_batch)
logging.getLogger("py4j.java_gateway").addFilter(_is_not_about_released)
