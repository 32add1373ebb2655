"""The heads of requests and responses as they stand in frames (`protocol/frames.py`). Pure."""

from __future__ import annotations

from dataclasses import replace

from hotplate.serving.gateway.admission.task_routes import TaskCall
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.protocol.headers import VERSION_FIELD

HEAD_END = b"\r\n\r\n"
NO_LENGTH = b"Content-Length: 0\r\n\r\n"


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


def with_line(head: bytes, line: bytes) -> bytes:
    """The head of a request with one more line, which begins with the end of the line before."""
    return b"%b%b%b" % (head[: -len(HEAD_END)], line, HEAD_END)


def response_frame_head(response: ResponseHead) -> bytes:
    """A response's head in a frame; its length is the frame's."""
    return b"%d %b\r\n%b" % (response.status, response.reason, b"".join(response.lines))


def framed_response(head: bytes, size_bytes: int | None) -> ResponseHead:
    """The response of a frame's head; `size_bytes` of body follow, None = to the end."""
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
        lines=lines,
        names_version=any(is_version_line(line) for line in lines),
    )


def is_version_line(line: bytes) -> bool:
    """Whether the line names the version that has answered."""
    return line.partition(b":")[0].lower() == VERSION_FIELD
