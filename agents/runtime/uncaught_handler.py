"""The author's handler of exceptions that end a thread (KIP-671)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from arrester.agents.arguments import check_function
from arrester.agents.config import dotted_path, load_object
from arrester.domain.errors import InvalidValue
from arrester.domain.state.uncaught_policy import UncaughtAnswer

_log = logging.getLogger("arrester.agent")

_ALLOWED = (
    "an UncaughtAnswer, a function of an exception that returns one, an object with "
    "handle(exception), or a dotted path to one of these"
)

#: The answer without a handler.
UNCAUGHT_DEFAULT = UncaughtAnswer.SHUTDOWN_CLIENT.value


class UncaughtHandler:
    """The author's handler of an exception that ends a thread."""

    def __init__(self, given: object = None) -> None:
        """Check the handler; raises InvalidValue if it is not valid."""
        #: The constant answer, or where the handler is defined, for display.
        self.shown = UNCAUGHT_DEFAULT
        self._constant = given if isinstance(given, UncaughtAnswer) else None
        self._handle: Callable[[BaseException], object] | None = None
        if self._constant is not None:
            self.shown = self._constant.value
        elif given is not None:
            self.shown = given.strip() if isinstance(given, str) else dotted_path(given)
            self._load(given)

    def _load(self, given: object) -> None:
        try:
            handler = load_object(given)
        except (ImportError, AttributeError, TypeError, ValueError) as exc:
            raise InvalidValue("on_uncaught", given, _ALLOWED) from exc
        if isinstance(handler, UncaughtAnswer):
            self._constant = handler
            return
        handle = getattr(handler, "handle", handler)
        if not callable(handle):
            raise InvalidValue("on_uncaught", given, _ALLOWED)
        check_function("on_uncaught", handle, _ALLOWED, arguments=1)
        self._handle = handle

    def answer(self, exception: BaseException) -> object:
        """Return the constant answer or the handler's; None without either.

        False if the handler raises or returns None.
        """
        if self._handle is None:
            return self._constant
        try:
            answer = self._handle(exception)
        except BaseException:  # the author's code; it runs in a thread that has to end in order
            _log.exception("the uncaught exception handler raised")
            return False
        return False if answer is None else answer
