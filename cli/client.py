"""The REST client: requests, pages, and the error of each status."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
from requests.auth import AuthBase

from arrester import __version__
from arrester.cli.connection import Connection
from arrester.cli.exit_codes import InvalidInput, Refused, Unreachable

#: Seconds to connect, and between bytes of an answer.
TIMEOUTS = (5, 60)
#: Attempts of a request without an answer: each request may be repeated, since acts have ids.
ATTEMPTS, DELAY_SECONDS = 3, 1.0
#: The longest wait that a server may ask for.
RETRY_SECONDS = 60.0
#: The most rows of a page.
PAGE = 500
Json = Any


class _TokenAuth(AuthBase):
    """Sends the token; without an `auth`, requests would send a password of ~/.netrc."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


class Client:
    """Requests to one server with one token."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._session = requests.Session()
        self._session.auth = _TokenAuth(connection.token)
        self._session.headers["User-Agent"] = f"arrester-cli/{__version__}"

    def get(self, path: str, **parameters: Any) -> Json:
        """Return the JSON of an endpoint; parameters that are None are left out.

        Raises:
            InvalidInput: the token or a value is not allowed.
            Refused: the role does not suffice, or there is no such thing.
            Unreachable: the server does not answer.
        """
        wanted = {name: value for name, value in parameters.items() if value is not None}
        return self._request("GET", path, params=wanted)

    def post(self, path: str, body: dict[str, Any], *, repeat: bool = True) -> Json:
        """Send an act and return its JSON; the errors are those of `get`.

        It is repeated if the answer is lost, because the body has the id of the act. Without an
        id, `repeat` is false.
        """
        return self._request("POST", path, repeat=repeat, json=body)

    def delete(self, path: str) -> Json:
        """Delete a thing and return the JSON of the answer, if it has any.

        It has no further effect if it is repeated.
        """
        return self._request("DELETE", path)

    def download(self, path: str, file: Path, **parameters: Any) -> int:
        """Write the bytes of an endpoint into a file; return its size.

        The file appears when it is whole. The errors are those of `get`.
        """
        wanted = {name: value for name, value in parameters.items() if value is not None}
        url, part = f"{self.connection.url}/api/v1/{path}", file.with_name(f"{file.name}.part")
        try:
            with self._session.get(
                url, params=wanted, timeout=TIMEOUTS, allow_redirects=False, stream=True
            ) as response:
                if response.status_code >= 500:
                    raise Unreachable(_detail(self.connection, response))
                if response.status_code != 200:
                    _json(self.connection, response)
                with part.open("wb") as opened:
                    opened.writelines(response.iter_content(1 << 16))
                size = part.stat().st_size
            part.replace(file)
        except requests.RequestException as error:
            raise Unreachable(f"{self.connection.url}: {_cause(error)}") from None
        except OSError as error:
            raise InvalidInput(f"{file} cannot be written: {error.strerror}") from None
        finally:
            with suppress(OSError):
                part.unlink()
        return size

    def rows(self, path: str, *, limit: int, **filters: Any) -> tuple[list[Json], str | None]:
        """Return at most `limit` rows of a list, and the cursor of the next one."""
        found = self.pages(path, limit=limit, **filters)
        return found["results"], found["next"]

    def pages(self, path: str, *, limit: int, **filters: Any) -> Json:
        """Return the first page of a list, with at most `limit` rows of it and of later pages."""
        rows: list[Json] = []
        cursor: str | None = None
        first: Json = None
        while True:
            size = min(limit - len(rows), PAGE)
            page = self.get(path, limit=size, cursor=cursor, **filters)
            first = first or page
            rows += page["results"]
            cursor = page["next"]
            if cursor is None or len(rows) >= limit:
                return {**first, "results": rows, "next": cursor}

    def _request(self, method: str, path: str, *, repeat: bool = True, **options: Any) -> Json:
        url = f"{self.connection.url}/api/v1/{path}"
        for delay in _delays() if repeat else [None]:
            try:
                response = self._session.request(
                    method, url, timeout=TIMEOUTS, allow_redirects=False, **options
                )
            except requests.exceptions.SSLError as error:
                raise Unreachable(f"{self.connection.url}: {_cause(error)}") from None
            except (requests.ConnectionError, requests.Timeout) as error:
                unreachable = f"{self.connection.url} does not answer: {_cause(error)}"
            except requests.RequestException as error:
                raise InvalidInput(f"{self.connection.url}: {error}") from None
            else:
                if response.status_code == 429 and delay is not None:
                    # Above the limit of requests; the server names the time.
                    time.sleep(
                        min(float(response.headers.get("Retry-After", delay)), RETRY_SECONDS)
                    )
                    continue
                if response.status_code < 500:
                    return _json(self.connection, response)
                unreachable = _detail(self.connection, response)
            if delay is None:
                raise Unreachable(unreachable)
            time.sleep(delay)
        raise AssertionError("unreachable")


def segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")


def _delays() -> Iterator[float | None]:
    """Yield the delay after each attempt; None after the last."""
    yield from [DELAY_SECONDS] * (ATTEMPTS - 1)
    yield None


def _json(connection: Connection, response: requests.Response) -> Json:
    """Return the JSON of a response, or raise the error of its status."""
    status = response.status_code
    if status == 401:
        where = f"of profile {connection.profile!r}" if connection.profile else "given"
        raise InvalidInput(
            f"the token {where} (…{connection.token[-4:]}) is not valid at {connection.url};"
            " allowed: a token of an active account that has not expired. Create one on Settings,"
            " then run `arrester login`"
        )
    if status in (301, 302, 307, 308):
        raise InvalidInput(
            f"URL {connection.url!r} redirects to {response.headers.get('Location')}; use that URL"
        )
    if status == 400:
        raise InvalidInput(_detail(connection, response))
    if status >= 400:
        raise Refused(_detail(connection, response), status=status)
    if status == 204:
        return None
    try:
        return response.json()
    except requests.exceptions.JSONDecodeError:
        raise InvalidInput(_detail(connection, response)) from None


def _detail(connection: Connection, response: requests.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (requests.exceptions.JSONDecodeError, KeyError, TypeError):
        return (
            f"{connection.url} answers {response.status_code} {response.reason} without JSON;"
            " allowed: the URL of an Arrester server"
        )


def _cause(error: BaseException) -> str:
    """Return the innermost reason of a connection error, without the names of objects."""
    while True:
        inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
        inner = inner or next((each for each in error.args if isinstance(each, Exception)), None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
