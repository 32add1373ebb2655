"""BentoML's task routes: what a caller asks of a task, and how it is passed on. Pure.

    POST <task>/submit     GET <task>/status?task_id=   GET <task>/get?task_id=
                           PUT <task>/cancel?task_id=   POST <task>/retry?task_id=

The control plane answers them, and `/docs.json` while no replica is there to. Between the two a
request or an answer is a *frame*: how long its head is (4 bytes), the head, and then the body until
the message's end. The head is HTTP's own lines, so that a task's handler sees what an ordinary call
would have shown it, and whoever fetches the result gets the handler's own answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import parse_qs, unquote_to_bytes

from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.protocol.routes import Route

METHODS = {"submit": b"POST", "status": b"GET", "get": b"GET", "cancel": b"PUT", "retry": b"POST"}
STARTING = frozenset({"submit", "retry"})
"""What makes a new task."""
OUTLASTING = frozenset({"status", "get", "cancel"})
HEAD_BYTES = 256 << 10
"""More is no frame's head: a request's own is limited to 64 KiB."""
LENGTH_BYTES = 4
NO_LENGTH = b"Content-Length: 0\r\n\r\n"


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
    def outlasts(self) -> bool:
        """Whether it is answered whatever becomes of the deployment: what a task has become."""
        return self.verb in OUTLASTING


def task_call(route: Route, request: RequestHead) -> TaskCall | None:
    """What the request asks of a task of the route; None for all else.

    A replica undoes percent encoding before it looks at a path, so that is done here too.
    """
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
    return TaskCall(verb, name, None if given is None else given[-1])


def run_head(
    request: RequestHead, request_id: bytes, call: TaskCall, *, with_authorization: bool
) -> bytes:
    """The head of the request that runs a submitted task, without its length and last line."""
    query = request.target.partition(b"?")[2]
    target = call.path.encode() + (b"?" + query if query else b"")
    run = replace(
        request,
        target=target,
        chunked=False,
        content_length=0,
        upgrade=b"",
        memo=None,
        written=None,
    )
    head = run.to_replica(b"localhost", request_id, with_authorization=with_authorization)
    return head.removesuffix(NO_LENGTH)


def framed(head: bytes) -> bytes:
    """The beginning of a frame."""
    return len(head).to_bytes(LENGTH_BYTES, "big") + head


async def frame_head(read_exactly: Callable[[int], Awaitable[bytes]]) -> bytes:
    """The head of a frame that is read. Raises ValueError for what is none, and what reading
    raises."""
    length = int.from_bytes(await read_exactly(LENGTH_BYTES), "big")
    if length > HEAD_BYTES:
        raise ValueError(f"a frame's head of {length} bytes; {HEAD_BYTES} are taken")
    return await read_exactly(length)


def answer_frame_head(answer: ResponseHead) -> bytes:
    """An answer's head in a frame; its length is the frame's."""
    return b"%d %b\r\n%b" % (answer.status, answer.reason, b"".join(answer.kept))


def framed_answer(head: bytes, size_bytes: int | None) -> ResponseHead:
    """The answer that a frame's head tells of; `size_bytes` of body follow, None = to the end."""
    first, *lines = head.splitlines(keepends=True)
    status, _, reason = first.rstrip(b"\r\n").partition(b" ")
    return ResponseHead(
        status=int(status),
        reason=reason,
        keep_alive=True,
        content_length=size_bytes,
        chunked=size_bytes is None,
        upgrade=b"",
        has_request_id=any(line[:13].lower() == b"x-request-id:" for line in lines),
        kept=lines,
    )
