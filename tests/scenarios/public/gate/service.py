"""A prefix before every path, a middleware around every call, pages elsewhere that may call."""

import time

import bentoml
from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

app = FastAPI()


class Key(BaseHTTPMiddleware):
    def __init__(self, app, key: str) -> None:
        super().__init__(app)
        self.key = key

    async def dispatch(self, request, call_next):
        if request.url.path.endswith("/secret") and request.headers.get("x-key") != self.key:
            return JSONResponse({"error": "The key is wrong."}, status_code=403)
        began = time.perf_counter()
        answer = await call_next(request)
        answer.headers["X-Seconds"] = str(time.perf_counter() - began)
        return answer


@bentoml.service(
    image=image,
    path_prefix="/gate",
    http={
        "cors": {
            "enabled": True,
            "access_control_allow_origins": ["https://page.test"],
            "access_control_allow_methods": ["POST", "OPTIONS"],
            "access_control_allow_headers": ["*"],
            "access_control_allow_credentials": True,
        }
    },
)
@bentoml.asgi_app(app, path="/app")
class Gate:
    @bentoml.api
    def secret(self) -> str:
        return "the cake is a lie"

    @bentoml.api
    def ping(self) -> str:
        return "pong"

    @app.get("/greet/{name}")
    def greet(self, name: str) -> dict:
        return {"message": f"hello {name}"}


Gate.add_asgi_middleware(Key, key="open sesame")
