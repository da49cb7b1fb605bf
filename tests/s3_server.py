"""S3 of moto, in a process of its own, and Hadoop's file system of it, from `scripts/jars`.

moto looks first and then stores, so this server answers one request after the other, as if S3 did
both at once. It drops the condition of each request to a bucket whose name begins with IGNORING.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from arrester.controlplane.embedded import process
from tests import scratch
from tests.patience import wait_until
from tests.ports import free_port
from tests.services import REPOSITORY

#: How the name of a bucket begins that has no conditional writes.
IGNORING = "ignoring-"
_STOP_SECONDS = 30.0
# The environments of other versions of Spark do not have moto.
_PYTHON = str(REPOSITORY / ".venv/bin/python")


@contextmanager
def running() -> Iterator[str]:
    """Run a server until the block ends, and return its URL."""
    import requests

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="arrester-s3-", dir=scratch.FOLDER) as folder:
        log = Path(folder) / "s3.log"
        child = process.start([_PYTHON, "-m", "tests.s3_server", str(port)], log=log)

        def answers() -> bool:
            assert child.poll() is None, f"the server ended: {log.read_text()[-2000:]}"
            try:
                return requests.get(url, timeout=5).ok
            except requests.RequestException:
                return False

        try:
            wait_until(answers, what="the S3 server")
            yield url
        finally:
            process.stop(child, signal.SIGTERM, seconds=_STOP_SECONDS)


def new_bucket(url: str, prefix: str = "") -> str:
    """Create a bucket, and return its URL for S3A."""
    import requests

    name = f"{prefix}{uuid4()}"
    requests.put(f"{url}/{name}", timeout=30).raise_for_status()
    return f"s3a://{name}"


def archives() -> list[Path]:
    """Return the archives of S3A for this Spark; none if they are not downloaded."""
    minor = ".".join(version("pyspark").split(".")[:2])
    return sorted((REPOSITORY / f"build/jars/s3-{minor}").glob("*.jar"))


def configuration(url: str) -> dict[str, str]:
    """Return the options of S3A for a server."""
    return {
        "fs.s3a.endpoint": url,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        # They do not affect what is tested, and the defaults take threads.
        "fs.s3a.threads.max": "4",
        "fs.s3a.connection.maximum": "8",
    }


def _serve(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any) -> None:
            """Log nothing."""

    application = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = Lock()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith(f"/{IGNORING}"):
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with one_at_a_time:
            return list(application(environ, start_response))

    make_server("127.0.0.1", port, answer, threaded=True, request_handler=Quiet).serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
