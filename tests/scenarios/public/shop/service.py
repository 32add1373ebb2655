"""Routes of a FastAPI application beside the service's own method."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import bentoml
from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

app = FastAPI(title="The shop")


class Item(BaseModel):
    name: str
    price: float


def customer(x_customer: Annotated[str, Header()] = "nobody") -> str:
    if x_customer == "nobody":
        raise HTTPException(401, "Who are you?")
    return x_customer


@bentoml.service(image=image)
@bentoml.asgi_app(app, path="/shop")
class Shop:
    def __init__(self) -> None:
        self.items = {1: Item(name="tea", price=2.5)}

    @bentoml.api
    def count(self) -> int:
        return len(self.items)

    @app.get("/items/{number}")
    async def item(self, number: int) -> Item:
        if number not in self.items:
            raise HTTPException(404, f"There is no item {number}.")
        return self.items[number]

    @app.put("/items/{number}", status_code=201)
    def put(
        self, number: int, item: Item, who: Annotated[str, Depends(customer)]
    ) -> dict[str, str]:
        self.items[number] = item
        return {"by": who}


@app.get("/ticks")
async def ticks(count: int = 3) -> StreamingResponse:
    async def pieces() -> AsyncIterator[str]:
        for number in range(count):
            yield f"{number}\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(pieces(), media_type="text/plain")


@app.get("/who")
async def who() -> dict[str, str]:
    service = bentoml.get_current_service()
    return {"service": type(service).__name__}
