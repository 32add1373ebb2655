"""Inputs and outputs described apart from the methods, at paths of their own; a bento with
arguments."""

import os
import typing as t
from pathlib import Path

import bentoml
from annotated_types import MinLen
from pydantic import BaseModel, Field

args = bentoml.use_arguments()


class Question(bentoml.IODescriptor):
    text: t.Annotated[str, MinLen(2)] = Field(description="What is asked")
    times: t.Annotated[int, Field(ge=1, le=3)] = 1


class Answer(bentoml.IODescriptor):
    answer: str
    by: str


class Point(BaseModel):
    x: int
    y: int = 0


@bentoml.service(envs=[{"name": "STYLE", "value": "loud"}])
class Routes:
    @bentoml.api(route="/v1/ask", input_spec=Question, output_spec=Answer)
    def ask(self, text, times):
        style = str.upper if os.environ["STYLE"] == "loud" else str.lower
        return Answer(answer=style(text) * times, by=args.author)

    @bentoml.api(route="/v2/ask/now")
    async def ask_now(self, text: str = "why") -> str:
        return f"{text}?"

    @bentoml.api
    def read(self, document: Path, /) -> str:
        return document.read_text()[::-1]

    @bentoml.api
    def join(self, words: t.List[str], /) -> str:
        return " ".join(words)

    @bentoml.api
    def mirror(self, point: Point, /) -> Point:
        return Point(x=point.y, y=point.x)

    @bentoml.api
    def add(self, *, first: int, second: int = 1) -> int:
        return first + second
