"""Prices orders: models in and out, nested, checked before the method runs."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Literal

import bentoml
from annotated_types import Ge, Lt
from pydantic import BaseModel, Field

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")


class Address(BaseModel):
    street: str
    country: str = Field(pattern="^[A-Z]{2}$")


class Line(BaseModel):
    product: Literal["tea", "coffee"]
    count: int = Field(ge=1, le=100)
    cents_each: int = Field(ge=0)


class Order(BaseModel):
    lines: list[Line] = Field(min_length=1)
    ship_to: Address
    ordered: date
    note: str | None = None


class Receipt(BaseModel):
    cents: int
    ship_to: Address
    arrives: date


@bentoml.service(image=image, resources={"cpu": "200m", "memory": "512Mi"})
class Orders:
    @bentoml.api
    def price(self, order: Order, discount: Annotated[float, Ge(0), Lt(1)] = 0.0) -> Receipt:
        cents = sum(line.count * line.cents_each for line in order.lines)
        return Receipt(
            cents=round(cents * (1 - discount)),
            ship_to=order.ship_to,
            arrives=order.ordered + timedelta(days=3),
        )

    @bentoml.api
    async def largest(self, orders: list[Order]) -> Order:
        if not orders:
            raise bentoml.exceptions.InvalidArgument("there are no orders")
        return max(orders, key=lambda order: len(order.lines))
