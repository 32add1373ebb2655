"""BentoML's task routes: what a caller asks of a task, and how it is passed on. Pure.

    POST <task>/submit     GET <task>/status?task_id=   GET <task>/get?task_id=
                           PUT <task>/cancel?task_id=   POST <task>/retry?task_id=

The control plane answers them, and `/docs.json` while no replica is there to.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, unquote_to_bytes

from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.protocol.routes import Route

METHODS = {"submit": b"POST", "status": b"GET", "get": b"GET", "cancel": b"PUT", "retry": b"POST"}
STARTING = frozenset({"submit", "retry"})
"""Calls that make a new task."""
OUTLASTING = frozenset({"status", "get", "cancel"})
TASK_ID_MAX = 64
"""Of a task's id, which has 32 characters. A longer one is of no task, and of none when it is cut;
the control plane would refuse the length of the question."""
DOCS = "docs"
DOCS_PATH = b"/docs.json"


class TaskCall(NamedTuple):
    """One call of a task route, or of `DOCS`."""

    verb: str
    path: str
    """The task's own path, or that of the document."""
    task_id: str | None = None

    @property
    def starts(self) -> bool:
        return self.verb in STARTING

    @property
    def is_about_earlier(self) -> bool:
        """Whether it names a task that was submitted earlier, to whichever version."""
        return self.verb in OUTLASTING or self.verb == "retry"

    @property
    def outlasts(self) -> bool:
        """Whether it is answered in any state of the deployment, because it asks about an earlier
        task."""
        return self.verb in OUTLASTING


def task_call(route: Route, request: RequestHead) -> TaskCall | None:
    """The request as a call of a task of the route; None = it is none. A replica decodes percent
    encoding before it looks at a path, so that is done here too."""
    if request.path.endswith(DOCS_PATH):
        at = route.ready_path.removesuffix("/readyz").encode() + DOCS_PATH
        reads = request.method in (b"GET", b"HEAD") and request.path == at
        return TaskCall(DOCS, at.decode()) if reads else None
    if not route.tasks:
        return None
    path = unquote_to_bytes(request.path) if b"%" in request.path else request.path
    task, _, ending = path.rpartition(b"/")
    verb, name = ending.decode("latin-1"), task.decode(errors="replace")
    method = b"GET" if request.method == b"HEAD" else request.method
    if METHODS.get(verb) != method or name not in route.tasks:
        return None
    query = parse_qs(request.target.partition(b"?")[2].decode("latin-1"), keep_blank_values=True)
    given = query.get("task_id")
    return TaskCall(verb, name, None if given is None else given[-1][:TASK_ID_MAX])
