"""What schemathesis leaves out, and the valid requests that REST refuses for another reason."""

from __future__ import annotations

import os
import re
from typing import Any

import schemathesis
from schemathesis.openapi.checks import RejectedPositiveData

OWN_TOKENS = "OWN_TOKENS"
#: Values whose validity no schema has: it depends on an earlier answer (`cursor`), on what is
#: stored (`exception_class` with its package, `as_of` @18233, the record of a `patch`), or
#: on another value of the request.
OF_ANY = {"as_of", "cursor", "exception_class", "last", "patch", "since", "step"}
#: By path. Which fields an act has, or requires, follows from its kind or from other fields. The
#: words of a search have a syntax, and the names of tokens and channels are unique.
OF_SOME = {
    "/agents/{id}": {"delete_keys"},
    "/commands": {"*"},
    "/dead-letters/discard": {"filter", "id"},
    "/dead-letters/redrive": {"dead_letters", "filter", "id", "reason"},
    "/dead-letters/{application}/{id}/test": {"dead_letters", "id"},
    "/errors/acts": {"ends_at", "failures", "assignee", "reason", "period_seconds"},
    "/errors/{application}/{fingerprint}/acts": {
        *("ends_at", "failures", "assignee", "reason", "period_seconds"),
    },
    "/event-subscriptions": {"address", "name"},
    "/failures/series": {"application", "task"},
    "/notes": {"about"},
    "/quarantine/{number}/acts": {"reason"},
    "/records": {"q"},
    "/resume": {"application"},
    "/tokens": {"applications", "days", "name"},
}


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Return whether a request is sent: not those that revoke a token of the tests."""
    if case.method == "DELETE" and case.operation.path == "/api/v1/tokens/{id}":
        return str((case.path_parameters or {}).get("id")) not in os.environ[OWN_TOKENS].split()
    return True


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Return whether what schemathesis calls a failure is one."""
    if not isinstance(failure, RejectedPositiveData):
        return True
    if response.status_code == 422:
        # The id of an act that came with another body: schemathesis has few ids.
        return False
    named = re.split(r"[.\[]", response.json().get("param", ""))[0]
    of_some = OF_SOME.get(case.operation.path.removeprefix("/api/v1"), set())
    return not (named in OF_ANY or {named, "*"} & of_some)
