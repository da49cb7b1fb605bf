"""Axe on pages and dialogs (WCAG 2.2 A and AA, good practice)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

#: Rules that depend on the theme.
OF_COLOUR = ("color-contrast", "link-in-text-block")
#: Most of axe's time goes into the contrast of one text after the other. Texts look the same if
#: they and all elements around them have the same tags, classes and colours, and if nothing with a
#: place of its own lies over or under them. One text of each look is marked.
MARK_NEW_LOOKS = """
(seen) => {
  const known = new Set(seen), found = [], looks = new Map(), hashes = new Map(), floating = [];
  const hash = (text) => {
    let [a, b] = [0xdeadbeef, 0x41c6ce57];
    for (let at = 0; at < text.length; at++) {
      a = Math.imul(a ^ text.charCodeAt(at), 2654435761);
      b = Math.imul(b ^ text.charCodeAt(at), 1597334677);
    }
    return `${a >>> 0}-${b >>> 0}`;
  };
  const look = (element) => {
    const style = getComputedStyle(element);
    const form = [
      looks.get(element.parentElement), element.tagName, element.getAttribute("class"),
      style.color, style.backgroundColor, style.backgroundImage, style.opacity, style.fontSize,
      style.fontWeight, style.textDecorationLine, style.textShadow, style.filter,
      style.mixBlendMode,
    ].join("|");
    if (!hashes.has(form)) hashes.set(form, hash(form));
    looks.set(element, hashes.get(form));
    if (style.position !== "static" || style.transform !== "none" || element.ownerSVGElement)
      floating.push([element, element.getBoundingClientRect(), element.closest("dialog")]);
  };
  const isAlone = (element) => {
    const mine = element.getBoundingClientRect(), dialog = element.closest("dialog");
    return !floating.some(([other, its, its_dialog]) => dialog === its_dialog &&
      its.left < mine.right && mine.left < its.right && its.top < mine.bottom &&
      mine.top < its.bottom && !other.contains(element) && !element.contains(other));
  };
  const hasText = (element) => element.matches("input, select, textarea") ||
    [...element.childNodes].some((each) => each.nodeType === Node.TEXT_NODE && each.data.trim());
  const all = [...document.body.querySelectorAll("*")].filter((each) => each.checkVisibility());
  for (const each of [document.documentElement, document.body, ...all]) look(each);
  for (const each of document.querySelectorAll("[data-new-look]")) delete each.dataset.newLook;
  for (const each of all) {
    const mine = looks.get(each);
    if (!hasText(each) || known.has(mine) && isAlone(each)) continue;
    each.dataset.newLook = "";
    if (!known.has(mine)) found.push(mine);
    known.add(mine);
  }
  return found;
}
"""
LOOK_AT_MARKED = """
axe.configure({rules: [{id: "color-contrast", selector: "[data-new-look]"}]})
"""
LOOK = """
([context, options]) => axe.run(context, options).then(({violations}) => violations)
"""


class Inspection:
    """Looks at pages, one after the other; colours are checked once for each look of a text."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def violations(
        self, page: Page, *, only: Sequence[str] = (), within: str | None = None
    ) -> list[str]:
        """Return the violated rules of a page, or of a part of it.

        All rules, or only those that are named.
        """
        _start(page)
        page.evaluate(LOOK_AT_MARKED)
        self._seen.update(page.evaluate(MARK_NEW_LOOKS, [*self._seen]))
        return _look(page, only, within)


def violations(page: Page) -> list[str]:
    """Return the violated rules of a page."""
    _start(page)
    return _look(page)


def _start(page: Page) -> None:
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe_script())


@cache
def axe_script() -> str:
    """Return the script, which defines `axe`."""
    return str(Axe().axe_script)


def _look(page: Page, only: Sequence[str] = (), within: str | None = None) -> list[str]:
    # A past state is greyed on purpose; a label has the same information.
    context = {"exclude": [[".removed"]]} | ({"include": [[within]]} if within else {})
    options = {"resultTypes": ["violations"]} | ({"runOnly": [*only]} if only else {})
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary']}"
        for rule in page.evaluate(LOOK, [context, options])
        for node in rule["nodes"][:2]
    ]
