"""The variables of a new credential are shown as lines of a shell."""

from __future__ import annotations

import html
import re
import subprocess

from django.urls import reverse
from redis import Redis

from arrester.dashboard.templatetags.formats import shell
from tests.dashboard.accounts import logged_in, make_user


def test_the_copied_variables_are_lines_of_a_shell(db: None, redis: Redis) -> None:
    admin = logged_in(make_user("ada", "admin"))
    page = admin.post(reverse("add-agent"), {"application": "flights"}, follow=True)
    found = re.search(r'<pre id="agent-url"[^>]*>(.*?)</pre>', page.content.decode(), re.DOTALL)
    assert found is not None
    lines = html.unescape(found[1])
    assert re.fullmatch(r"export REDIS_URL='.+'\nexport ARRESTER_SERVER_KEY='.+'", lines)
    shown = subprocess.run(
        ["sh", "-c", f'{lines}\nprintf "%s %s" "$REDIS_URL" "$ARRESTER_SERVER_KEY"'],
        capture_output=True,
        text=True,
        check=True,
    )
    url, key = shown.stdout.split(" ")
    assert "arrester-agent-flights" in url and key.startswith("ed25519:")


def test_each_character_of_a_value_is_kept() -> None:
    for text in ("unix:///tmp/a?db=0&x=1", "it's $HOME `ls`", "plain"):
        quoted = shell(text)
        assert quoted.startswith("'")
        done = subprocess.run(["sh", "-c", f"printf %s {quoted}"], capture_output=True, text=True)
        assert done.stdout == text
