"""Exported files of the dashboard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from django.test import AsyncClient


def exported(url: str, *, user: str) -> str:
    """Return the text of an exported file."""

    async def read() -> str:
        client = AsyncClient()
        await client.aforce_login(await User.objects.aget(username=user))
        response = cast(StreamingHttpResponse, await client.get(url))
        assert response.status_code == 200
        chunks = [chunk async for chunk in cast(AsyncIterator[bytes], response.streaming_content)]
        return b"".join(chunks).decode()

    return async_to_sync(read)()
