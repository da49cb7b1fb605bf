"""REST: the feed as a response that lasts, as lines of JSON or as server-sent events.

A stream reads portions of the logs in threads, one portion at a time, and waits for notifications
of PostgreSQL in between: it has no thread and no connection of its own while there is no event.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, ClassVar, Final, TypeVar

from asgiref.sync import sync_to_async
from django.db import OperationalError, connections
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request

from arrester.controlplane import access, queries
from arrester.controlplane.models import RestToken
from arrester.controlplane.queries import event_lines
from arrester.dashboard.live.hub import ALL, Mailbox
from arrester.dashboard.live.stream import HUB, person_of_session
from arrester.dashboard.permissions import person
from arrester.dashboard.rest import base, problems
from arrester.dashboard.rest.authentication import RestTokenAuthentication
from arrester.dashboard.rest.event_feed.page import FollowQuerySerializer
from arrester.dashboard.rest.problems import PAST
from arrester.domain.errors import ArresterError

#: The most events that are read at once; a portion also ends by its bytes.
PORTION: Final = 5_000
#: Each server-sent event has a cursor, whose length grows with the number of logs.
SSE_PORTION: Final = 100
HEARTBEAT_SECONDS = 15.0
#: How long a stream may continue after its token is revoked or its user loses a role.
CHECK_SECONDS = 15.0
#: The longest stream; its client continues at the last cursor.
MOST_SECONDS = 3600.0
#: Events that are folded in this time are sent together.
_COLLECT_SECONDS = 0.05
Result = TypeVar("Result")


class TooManyStreams(APIException):
    """A user, or all together, have as many open streams as allowed."""

    status_code = 429
    default_code = "throttled"
    default_detail = "too many open streams; close some, or read pages of /api/v1/feed"


class JsonErrors(BaseContentNegotiation):
    """Give errors as JSON: a client of the stream accepts only the media type of the stream."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[Any, str]:
        """Return the first renderer."""
        return renderers[0], renderers[0].media_type


class Form(ABC):
    """How the events of a stream are sent."""

    portion: ClassVar[int]

    @abstractmethod
    def events(self, feed: queries.Feed) -> Iterator[bytes]:
        """Yield events, and the cursor after them."""

    @abstractmethod
    def heartbeat(self, cursor: str) -> bytes:
        """Return what is sent while there are no events."""

    @abstractmethod
    def problem(self, problem: Any) -> bytes:
        """Return the error that ends the stream."""


class Lines(Form):
    """Lines of JSON: events, and after each portion its cursor."""

    portion = PORTION

    def events(self, feed: queries.Feed) -> Iterator[bytes]:
        """Yield the events of a portion, and the cursor after them."""
        yield b"\n".join([*event_lines.lines(feed.events), self.heartbeat(feed.next)])

    def heartbeat(self, cursor: str) -> bytes:
        """Return the line of a cursor."""
        return event_lines.encode({"next": cursor}) + b"\n"

    def problem(self, problem: Any) -> bytes:
        """Return the line of an error."""
        return event_lines.encode({"problem": problem}) + b"\n"


class ServerSentEvents(Form):
    """Server-sent events: the id of each is the cursor after it."""

    portion = SSE_PORTION

    def events(self, feed: queries.Feed) -> Iterator[bytes]:
        """Yield the events of a portion."""
        yield b"".join(
            b"id: %s\ndata: %s\n\n" % (cursor.encode(), line)
            for cursor, line in zip(feed.cursors(), event_lines.lines(feed.events), strict=True)
        )

    def heartbeat(self, cursor: str) -> bytes:
        """Return a comment."""
        return b": no new events\n\n"

    def problem(self, problem: Any) -> bytes:
        """Return the event of an error, after which a client does not continue."""
        return b"event: problem\ndata: %s\n\n" % event_lines.encode(problem)


class Follower:
    """The reader of one stream: reads with the permissions that the request began with."""

    def __init__(self, request: Request, portion: int, application: str | None) -> None:
        self._request, self._portion, self.application = request, portion, application
        self.who = base.person_of(request)
        self._next_check = time.monotonic() + CHECK_SECONDS

    def read(self, *, cursor: str | None, last: int | None = None) -> queries.Feed:
        """Return the next portion."""
        return queries.feed(self.application, cursor=cursor, last=last, limit=self._portion)

    async def read_later(self, cursor: str) -> queries.Feed | None:
        """Return the next portion; None while PostgreSQL does not answer."""
        return await self._in_thread(lambda: self.read(cursor=cursor), None)

    async def may_continue(self) -> bool:
        """Return whether the token or session is still valid and sees the same applications."""
        if time.monotonic() < self._next_check:
            return True
        self._next_check = time.monotonic() + CHECK_SECONDS
        # While PostgreSQL is unreachable there are no events to send.
        return await self._in_thread(self._sees_same, True)

    def _sees_same(self) -> bool:
        access.enter(None)
        request = self._request
        if isinstance(request.auth, RestToken):
            try:
                found = RestTokenAuthentication().authenticate(request)
            except APIException:
                return False
            who = None if found is None else person(*found)
        else:
            who = person_of_session(request._request.session.session_key)
        return who is not None and self.who is not None and who.seen == self.who.seen

    async def _in_thread(self, function: Callable[[], Result], otherwise: Result) -> Result:
        def confined() -> Result:
            access.enter(self.who)
            try:
                return function()
            except OperationalError:
                return otherwise
            finally:
                connections.close_all()
                access.enter(None)

        return await sync_to_async(confined, thread_sensitive=False)()


async def follow(
    follower: Follower, mailbox: Mailbox, form: Form, feed: queries.Feed, *, forever: bool
) -> AsyncGenerator[bytes, None]:
    """Yield a portion and all later ones; without `forever`, those that are stored."""
    if feed.more or forever:
        # The stream may last for an hour: it does not keep the connection of the request.
        await sync_to_async(connections.close_all)()
    for chunk in form.events(feed):
        yield chunk
    if not feed.more and not forever:
        return
    end = time.monotonic() + MOST_SECONDS
    cursor, more = feed.next, feed.more
    async with HUB.subscription(mailbox):
        while time.monotonic() < end and await follower.may_continue():
            if not more:
                if not forever:
                    return
                if not await _changed(mailbox, follower.application):
                    yield form.heartbeat(cursor)
                    continue
            try:
                found = await follower.read_later(cursor)
            except ArresterError as error:
                yield form.problem(_problem(error))
                return
            if found is None:
                await asyncio.sleep(1.0)
                more = True
                yield form.heartbeat(cursor)
                continue
            cursor, more = found.next, found.more
            if found.events:
                for chunk in form.events(found):
                    yield chunk


async def _changed(mailbox: Mailbox, application: str | None) -> bool:
    """Wait for a change; return whether the application, or any with None, may have one."""
    changed = await mailbox.take(timeout=HEARTBEAT_SECONDS)
    if not changed:
        return False
    await asyncio.sleep(_COLLECT_SECONDS)
    return application is None or not changed.isdisjoint((ALL, application))


def _problem(error: ArresterError) -> Any:
    response = problems.handle(error, {})
    return None if response is None else response.data


class StreamQuerySerializer(FollowQuerySerializer):
    """The events of a stream."""

    follow = serializers.BooleanField(
        required=False,
        default=True,
        help_text="False: the stream ends after the stored events.",
    )


class StreamView(base.RestView):
    """Base of the streams."""

    permission_classes = (base.MayRead,)
    content_negotiation_class = JsonErrors
    #: The stream of a HEAD request would last unread.
    http_method_names: ClassVar[list[str]] = ["get", "options"]  # type: ignore[misc]  # Django's
    form: ClassVar[Form]
    media_type: ClassVar[str]

    def stream(self, request: Request, wanted: dict[str, Any]) -> HttpResponseBase:
        """Return the stream of the events of a request, from the first portion on."""
        forever = wanted.pop("follow", True)
        follower = Follower(request, self.form.portion, wanted.pop("application", None))
        who = follower.who
        assert who is not None
        mailbox = HUB.claim(who.name, who.seen)
        if mailbox is None:
            raise TooManyStreams
        # Read here, so that errors have their status.
        feed = follower.read(cursor=wanted.get("cursor"), last=wanted.get("last"))
        return StreamingHttpResponse(
            follow(follower, mailbox, self.form, feed, forever=forever),
            content_type=self.media_type,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )


class LinesView(StreamView):
    """The feed as lines of JSON."""

    form = Lines()
    media_type = "application/x-ndjson"

    @extend_schema(
        parameters=[StreamQuerySerializer],
        responses={(200, media_type): OpenApiTypes.STR} | PAST,
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Stream the events after a cursor, one on a line, then new ones as they are stored.

        A line `{"next": …}` after some events, and every 15 s, has the cursor to continue with.
        The stream ends after an hour, or with a line `{"problem": …}`.
        """
        return self.stream(request, base.values(StreamQuerySerializer, request.query_params))


class ServerSentEventSerializer(serializers.Serializer[Any]):
    """One server-sent event."""

    id = serializers.CharField(required=False, help_text="The cursor after the event.")
    event = serializers.CharField(
        required=False, help_text="`problem` for the error that ends the stream."
    )
    data = serializers.CharField(help_text="The event, or the problem, as JSON.")  # type: ignore[assignment]  # a name of DRF's, too


class ServerSentEventsView(StreamView):
    """The feed as server-sent events."""

    form = ServerSentEvents()
    media_type = "text/event-stream"

    @extend_schema(
        parameters=[
            StreamQuerySerializer,
            OpenApiParameter(
                "Last-Event-ID",
                str,
                OpenApiParameter.HEADER,
                description="The `id` of the last event received, in place of the cursor.",
            ),
        ],
        responses={(200, media_type): ServerSentEventSerializer} | PAST,
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Stream the events after a cursor as server-sent events, then new ones.

        Each has `data`, the event as JSON, and `id`, the cursor after it: no event is missed or
        repeated. The stream ends after an hour; browsers open it again. An `event: problem` ends it
        for good.
        """
        wanted = base.values(StreamQuerySerializer, request.query_params)
        last_id = request.headers.get("Last-Event-ID")
        if last_id:
            # A browser repeats the address of its first request.
            wanted.pop("last", None)
            wanted["cursor"] = last_id
        return self.stream(request, wanted)
