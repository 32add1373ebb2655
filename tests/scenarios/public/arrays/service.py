"""Scales rows of numbers."""

import typing as t

import bentoml
import numpy as np
from bentoml.validators import DType, Shape
from pydantic import Field

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

Rows = t.Annotated[np.ndarray, Shape((-1, 4)), DType("float64")]


@bentoml.service(name="array-scaler", image=image)
class Arrays:
    @bentoml.api
    def scale(
        self, rows: Rows = Field(default=[[1.0, 2.0, 3.0, 4.0]]), by: float = 2.0
    ) -> np.ndarray:
        return np.asarray(rows) * by

    @bentoml.api
    def norm(self, row: np.ndarray, /) -> float:
        return float(np.linalg.norm(row))
