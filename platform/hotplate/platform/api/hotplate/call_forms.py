"""A form that describes a call of a deployment: its first fields say which, the others are sent on.

So that files are not held, they are sent as they come: the fields `method`, `path`, `headers` (a
JSON object) and `version` stand before all others. What follows them is the form that the
deployment gets, but for a field `body` that stands there first: it is the body itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from secrets import token_hex
from typing import Any, Self

from aiohttp import BodyPartReader, MultipartReader, web

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.deployment_call import (
    CONTENT_TYPE,
    HEADERS_BYTES,
    DeploymentCall,
    deployment_call,
)
from hotplate.platform.spec.fields import Fields

DESCRIBES = ("method", "path", "headers", "version")
BODY = "body"
FORM = "multipart/form-data"
FIELD_BYTES = 2 * HEADERS_BYTES
PIECE_BYTES = 64 << 10
OF_PART = ("Content-Disposition", "Content-Type", "Content-Transfer-Encoding")


class CallForm:
    """A form of which the description has been read."""

    def __init__(
        self, call: DeploymentCall, reader: MultipartReader, part: BodyPartReader | None
    ) -> None:
        """`part` is the first that is not of the description."""
        self._reader = reader
        self._part = part
        wants_form = call.header(CONTENT_TYPE).lower().startswith(FORM)
        self._is_raw = part is not None and part.name == BODY and not wants_form
        self._boundary = token_hex(16)
        headers = tuple(each for each in call.headers if not _names_form(*each))
        self.call = DeploymentCall(call.method, call.path, headers, call.version)

    @classmethod
    async def begun(cls, request: web.Request, secrets: tuple[str, ...]) -> Self:
        """Read up to what is sent on. Raises Invalid."""
        reader = await _opened(request)
        said: dict[str, Any] = {}
        part = await _next(reader)
        while part is not None and part.name in DESCRIBES and part.name not in said:
            said[part.name] = await _text(part, part.name)
            part = await _next(reader)
        if said.get("headers"):
            said["headers"] = _json(said["headers"])
        return cls(deployment_call(Fields(said), secrets), reader, part)

    @property
    def type(self) -> str:
        """Of the body; empty where there is none, or it does not say."""
        if self._part is None:
            return ""
        if self._is_raw:
            return self._part.headers.get("Content-Type", "")
        return f"{FORM}; boundary={self._boundary}"

    def body(self) -> AsyncIterator[bytes] | None:
        """What is sent, as it comes; None = nothing."""
        if self._part is None:
            return None
        return self._raw(self._part) if self._is_raw else self._parts(self._part)

    async def _raw(self, part: BodyPartReader) -> AsyncIterator[bytes]:
        async for piece in _pieces(part):
            yield piece
        if await _next(self._reader) is not None:
            raise Invalid("body: a field 'body' is the whole body; leave out what follows it")

    async def _parts(self, first: BodyPartReader) -> AsyncIterator[bytes]:
        part: BodyPartReader | None = first
        while part is not None:
            yield f"--{self._boundary}\r\n".encode()
            for name in OF_PART:
                if name in part.headers:
                    yield f"{name}: {part.headers[name]}\r\n".encode(errors="surrogateescape")
            yield b"\r\n"
            async for piece in _pieces(part):
                yield piece
            yield b"\r\n"
            part = await _next(self._reader)
        yield f"--{self._boundary}--\r\n".encode()


async def _opened(request: web.Request) -> MultipartReader:
    if request.content_type != FORM:
        raise Invalid(f"Content-Type: {request.content_type!r:.80} is not {FORM}")
    try:
        return await request.multipart()
    except ValueError as error:
        raise Invalid(f"body: it is not a form ({error})") from error


async def _next(reader: MultipartReader) -> BodyPartReader | None:
    """Raises Invalid."""
    try:
        part = await reader.next()
    except ValueError as error:
        raise Invalid(f"body: it is not a form ({error})") from error
    if isinstance(part, MultipartReader):
        raise Invalid("body: a form within a form is not sent on; send its fields")
    return part


async def _pieces(part: BodyPartReader) -> AsyncIterator[bytes]:
    """As it is, in whatever coding."""
    while piece := await part.read_chunk(PIECE_BYTES):
        yield piece


async def _text(part: BodyPartReader, name: str) -> str:
    data = bytearray()
    async for piece in _pieces(part):
        data += piece
        if len(data) > FIELD_BYTES:
            raise Invalid(f"{name}: it has {len(data)} bytes or more (limit {FIELD_BYTES})")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{name}: it is not text in UTF-8 ({error})") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"headers: it is not a JSON object ({error})") from error


def _names_form(name: str, value: str) -> bool:
    """Whether a header says what our own boundary is part of."""
    return name.lower() == CONTENT_TYPE and value.lower().startswith(FORM)
