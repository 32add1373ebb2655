"""Answers as a chat model does, token by token: a stream of events and one of plain text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import bentoml
from pydantic import BaseModel

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")


class Message(BaseModel):
    role: str
    content: str


class Model:
    async def answer(self, text: str) -> AsyncGenerator[str, None]:
        for word in text.upper().split():
            await asyncio.sleep(0.02)
            yield f"{word} "


@bentoml.service(image=image, traffic={"timeout": 300})
class Chat:
    def __init__(self) -> None:
        self.model = Model()

    @bentoml.api
    async def generate(self, prompt: str) -> AsyncGenerator[str, None]:
        async for token in self.model.answer(prompt):
            yield token

    @bentoml.api(route="/v1/events")
    async def events(
        self, messages: list[Message], ctx: bentoml.Context
    ) -> AsyncGenerator[str, None]:
        ctx.response.headers["content-type"] = "text/event-stream"
        async for token in self.model.answer(messages[-1].content):
            yield f"data: {json.dumps({'token': token})}\n\n"
        yield "data: [DONE]\n\n"
