"""A chain of three services, the first of which has nearly every shape that BentoML knows."""

from __future__ import annotations

from tests.support.services.bentos import IMAGE

PAGE = "http://page.test"
"""The origin whose pages may call; whoever builds the bentos puts a real one in its place."""
CORS = f"""
CORS = {{
    "enabled": True,
    "access_control_allow_origins": ["{PAGE}"],
    "access_control_allow_methods": ["GET", "POST"],
    "access_control_allow_headers": ["Content-Type"],
    "access_control_expose_headers": ["X-Stamp"],
}}
"""

HALL = (
    IMAGE
    + CORS
    + '''
import json
from pathlib import Path
from typing import AsyncGenerator, Generator

from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute

try:  # in the replica; the laptop that builds it may do without
    from fastapi import FastAPI
except ImportError:
    from starlette.applications import Starlette as FastAPI




def span(began: float, **more) -> dict:
    return {"pid": me(), "began": began, "ended": time.time(), **more}


def note(line: str) -> None:
    """One line in the file of what happened when."""
    with open(os.environ.get("NOTES", os.devnull), "a") as file:
        file.write(f"{line} {me()}\\n")


class Question(BaseModel):
    text: str
    times: int = 2


@bentoml.service(image=image, workers=2, threads=2)
class Back:
    """Two processes of two threads: four slots."""

    @bentoml.on_deployment
    def deployed() -> None:
        note("deployed")

    @bentoml.on_startup
    def start(self) -> None:
        note("started")

    @bentoml.on_shutdown
    async def stop(self) -> None:
        note("stopped")

    @bentoml.api
    def shout(self, text: str, seconds: float = 0.0) -> dict:
        began = time.time()
        time.sleep(seconds)  # a handler in a thread: nobody can cancel it
        return span(began, text=text.upper())


@bentoml.service(image=image, traffic={"concurrency": 6})
class Middle:
    back = bentoml.depends(Back)

    @bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=3000)
    def lengths(self, texts: list[str]) -> list[list[int]]:
        time.sleep(0.2)  # so that calls meet in one batch
        return [[len(text), len(texts)] for text in texts]

    @bentoml.api
    def relay(self, text: str, seconds: float = 0.0) -> dict:
        return {**self.back.shout(text=text, seconds=seconds), "middle": me()}


async def hello(request) -> JSONResponse:
    began = time.time()
    await asyncio.sleep(float(request.query_params.get("seconds", 0)))
    return JSONResponse(span(began, app=type(request.app).__name__))


async def echoes(websocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text.upper())


async def plain(scope, receive, send) -> None:
    body = f"plain {scope['method']}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def wsgi(environ, start_response) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"wsgi " + environ["REQUEST_METHOD"].encode()]


class Stamp:
    """A middleware."""

    def __init__(self, app, word: str) -> None:
        self.app = app
        self.word = word.encode()

    async def __call__(self, scope, receive, send) -> None:
        async def stamped(message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-stamp", self.word))
            await send(message)

        await self.app(scope, receive, stamped if scope["type"] == "http" else send)


mounted = FastAPI(routes=[Route("/hello", hello), WebSocketRoute("/ws", echoes)])


@bentoml.asgi_app(mounted, path="/mounted")
@bentoml.asgi_app(plain, path="/plain")
@bentoml.service(
    image=image,
    threads=2,
    traffic={"concurrency": 2},
    http={"cors": CORS},
)
class Hall:
    middle = bentoml.depends(Middle)
    back = bentoml.depends(Back)

    @bentoml.api
    async def chain(self, text: str, seconds: float = 0.0) -> dict:
        return await self.middle.to_async.relay(text=text, seconds=seconds)

    @bentoml.api
    def chain_sync(self, text: str) -> dict:
        return self.middle.to_sync.relay(text=text)

    @bentoml.api
    async def crowd(self, callers: int, seconds: float) -> list[dict]:
        calls = [self.back.to_async.shout(text=str(n), seconds=seconds) for n in range(callers)]
        return list(await asyncio.gather(*calls))

    @bentoml.api
    async def batch(self, texts: list[str]) -> list[list[int]]:
        answers = await asyncio.gather(*(self.middle.to_async.lengths([t]) for t in texts))
        return [one for answer in answers for one in answer]

    @bentoml.api
    def block(self, seconds: float) -> dict:
        began = time.time()
        time.sleep(seconds)  # a handler in a thread: nobody can cancel it
        return span(began)

    @bentoml.api
    async def wait(self, seconds: float) -> dict:
        began = time.time()
        await asyncio.sleep(seconds)
        return span(began)

    @bentoml.api
    async def events(
        self, pieces: int, ctx: bentoml.Context, pause_s: float = 0.1
    ) -> AsyncGenerator[str, None]:
        ctx.response.headers["content-type"] = "text/event-stream"
        began = time.time()
        for number in range(pieces):
            await asyncio.sleep(pause_s)
            yield f"data: {json.dumps(span(began, number=number))}\\n\\n"

    @bentoml.api
    def lines(self, pieces: int, pause_s: float = 0.1) -> Generator[str, None, None]:
        began = time.time()
        for number in range(pieces):
            time.sleep(pause_s)  # a generator that is not async: it runs in a thread
            yield json.dumps(span(began, number=number)) + "\\n"

    @bentoml.api
    def reverse(self, file: Path, ctx: bentoml.Context) -> Path:
        answer = Path(ctx.temp_dir) / "reversed.bin"
        answer.write_bytes(file.read_bytes()[::-1])
        return answer

    @bentoml.api
    def model(self, question: Question) -> Question:
        return Question(text=question.text * question.times, times=0)

    @bentoml.api
    def root(self, text: str, /) -> str:
        return text[::-1]

    @bentoml.api
    def environment(self) -> dict:
        return dict(os.environ)


Hall.add_asgi_middleware(Stamp, word="stamped")
Hall.mount_wsgi_app(wsgi, path="/wsgi")
'''
)
