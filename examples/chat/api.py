"""OpenAI's routes; errors have OpenAI's form, so that its SDK raises them."""

from __future__ import annotations

from typing import Annotated, Any

import bentoml
from answer import TooLong
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from protocol import ChatRequest, Completion, error, model_card

app = FastAPI(title="Chat")
Service = Annotated[Any, Depends(bentoml.get_current_service)]


class UnknownModel(Exception):
    """The request is for a model that is not served here."""

    def __init__(self, asked: str, served: str) -> None:
        super().__init__(f"The model '{asked}' does not exist; this service has '{served}'.")


@app.get("/models")
async def models(service: Service) -> dict[str, Any]:
    return {"object": "list", "data": [model_card(service.model.name)]}


@app.get("/models/{name:path}")
async def model(name: str, service: Service) -> dict[str, Any]:
    if name != service.model.name:
        raise UnknownModel(name, service.model.name)
    return model_card(name)


@app.post("/chat/completions", response_model=None)
async def chat_completions(request: ChatRequest, service: Service) -> dict[str, Any] | Response:
    if request.model != service.model.name:
        raise UnknownModel(request.model, service.model.name)
    completion = Completion(request.model, request, service.model.answer(request))
    if not request.stream:
        return await completion.whole()
    headers = {"Cache-Control": "no-cache"}
    return StreamingResponse(completion.events(), headers=headers, media_type="text/event-stream")


@app.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])
async def no_route(request: Request) -> Response:
    """Answers unknown routes here, because BentoML would answer them in its own form."""
    return refusal(404, f"There is no {request.method} {request.url.path} here.")


@app.exception_handler(UnknownModel)
async def unknown_model(_: Request, wrong: UnknownModel) -> Response:
    return refusal(404, str(wrong), "model", "model_not_found")


@app.exception_handler(TooLong)
async def too_long(_: Request, wrong: TooLong) -> Response:
    return refusal(400, str(wrong), "messages", "context_length_exceeded")


@app.exception_handler(RequestValidationError)
async def unfit(_: Request, wrong: RequestValidationError) -> Response:
    first = wrong.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    message = first["msg"].removeprefix("Value error, ")
    return refusal(400, f"{param}: {message}" if param else message, param)


@app.exception_handler(Exception)
async def failed(_: Request, wrong: Exception) -> Response:
    return JSONResponse(error(f"The model failed: {wrong}", "server_error"), 500)


def refusal(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> Response:
    return JSONResponse(error(message, "invalid_request_error", param, code), status)
