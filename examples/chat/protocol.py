"""The requests and responses of OpenAI's chat completions, as far as this service knows them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any, Literal

from answer import Answer
from pydantic import BaseModel, Field, field_validator, model_validator

LONGEST = 1024
"""The most tokens of an answer if the request does not limit them."""


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def joined(cls, content: Any) -> Any:
        """Joins content that comes in parts."""
        if not isinstance(content, list):
            return content
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            raise ValueError("this service reads text only: send parts of the type 'text'")
        return "".join(texts)


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatRequest(BaseModel):
    """Fields that are not named here are ignored, as null is."""

    model: str
    messages: list[Message] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    max_tokens: int = Field(LONGEST, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = None
    stop: str | list[str] = []
    n: Literal[1] = 1

    @model_validator(mode="before")
    @classmethod
    def without_nulls(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        if fields.get("tools"):
            raise ValueError("this service calls no tools: leave 'tools' out")
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop

    def limit(self, room: int) -> int:
        """How many tokens the answer may have, if the model has room for `room`."""
        return min(self.max_completion_tokens or self.max_tokens, room)


def model_card(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "you"}


def error(message: str, kind: str, param: str | None = None, code: str | None = None) -> Any:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Completion:
    """One answer in OpenAI's form, whole or as a stream of events."""

    def __init__(self, model: str, request: ChatRequest, answer: Answer) -> None:
        self._request = request
        self._answer = answer
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    async def whole(self) -> dict[str, Any]:
        text = "".join([piece async for piece in self._answer.pieces(self._request.stops)])
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": self._answer.finish_reason,
            "logprobs": None,
        }
        head = {**self._head, "object": "chat.completion"}
        return {**head, "choices": [choice], "usage": self._usage()}

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events. A failure after the start of the stream is an event too."""
        yield self._chunk({"role": "assistant", "content": ""})
        try:
            async for piece in self._answer.pieces(self._request.stops):
                yield self._chunk({"content": piece})
        except Exception as failure:
            yield _event(error(f"The model failed: {failure}", "server_error"))
            raise
        yield self._chunk({}, self._answer.finish_reason)
        if self._request.stream_options.include_usage:
            yield self._event_of([], self._usage())
        yield "data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return self._event_of([choice], None)

    def _event_of(self, choices: list[Any], usage: dict[str, int] | None) -> str:
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": choices}
        if self._request.stream_options.include_usage:
            chunk["usage"] = usage
        return _event(chunk)

    def _usage(self) -> dict[str, int]:
        asked, answered = self._answer.prompt_tokens, self._answer.completion_tokens
        return {
            "prompt_tokens": asked,
            "completion_tokens": answered,
            "total_tokens": asked + answered,
        }


def _event(content: Any) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"
