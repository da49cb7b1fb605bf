"""URLs of Redis: the login in them, and their form for Celery."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

_LOGIN = ("username", "password")


def with_login(url: str, user: str, password: str) -> str:
    """Return `url` with another user and password."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    options = [(name, value) for name, value in parse_qsl(parts.query) if name not in _LOGIN]
    query = urlencode(options, safe="/:")
    # urlunsplit leaves out the slashes of a URL without a host.
    return urlunsplit(parts._replace(netloc=f"{login}@{place}", query=query))


def for_celery(url: str) -> str:
    """Return `url` in Celery's form, which has another scheme for Unix sockets."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    query = dict(parse_qsl(parts.query))
    user = unquote(parts.username or "") or query.get("username", "")
    password = unquote(parts.password or "") or query.get("password", "")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if password else ""
    return f"redis+socket://{login}{parts.path}?virtual_host={query.get('db', '0')}"
