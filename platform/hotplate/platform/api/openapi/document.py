"""`GET /openapi.json`: our own routes, for programs that make clients and for people who look."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from hotplate.machine.access.metrics_check import TOKEN_HEADER
from hotplate.platform.api.openapi.operations import OPERATIONS, Operation
from hotplate.platform.api.openapi.schemas import TEXT, Schema, members

PATH = "/openapi.json"
OPEN = (PATH, "/healthz", "/readyz")
"""Paths that need no token."""
ERROR = members(error=members(code=TEXT, message=TEXT))
_PARAMETER = re.compile(r"\{(\w+)\}")


def document() -> dict[str, Any]:
    """OpenAPI 3.1. Every refusal has the same body, whatever its status."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method.lower()] = _described(method, path, operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hotplate",
            "version": "1",
            "description": "Routes of Hotplate's own, beside those of BentoCloud's API.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": TOKEN_HEADER}},
        },
        "security": [{"token": []}],
    }


def routes() -> list[web.RouteDef]:
    described = document()

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(described)

    return [web.get(PATH, answer)]


def _described(method: str, path: str, operation: Operation) -> dict[str, Any]:
    parameters = [_parameter("path", name, TEXT) for name in _PARAMETER.findall(path)]
    parameters += [_parameter("query", name, schema) for name, schema in operation.query.items()]
    described: dict[str, Any] = {
        "operationId": f"{method.lower()} {path}",
        "summary": operation.about,
        "parameters": parameters,
        "responses": {
            "200": {"description": "done", "content": _answers(operation)},
            # The HTTP server's own, before anybody is asked who calls.
            "417": {
                "description": "`Expect` is not `100-continue`",
                "content": {"text/plain": {"schema": TEXT}},
            },
            "default": _else(operation),
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.body)}
    if path in OPEN:
        described["security"] = []
    return described


def _parameter(place: str, name: str, schema: Schema) -> dict[str, Any]:
    return {"in": place, "name": name, "required": place == "path", "schema": schema}


def _answers(operation: Operation) -> dict[str, Any]:
    file = {operation.file: {"schema": TEXT}} if operation.file else {}
    return {operation.media: {"schema": operation.answer}} | file


def _else(operation: Operation) -> dict[str, Any]:
    if operation.passes_on:  # as nobody can say beforehand: empty too, and without a type
        return {"description": "refused, in a sentence or by whoever is called"}
    error = {"$ref": "#/components/schemas/Error"}
    return {"description": "refused, in a sentence", "content": _json(error)}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
