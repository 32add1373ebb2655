"""A model that reads several texts at once: calls that wait together are one batch."""

from __future__ import annotations

import bentoml
import numpy as np

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

SAMPLES = ["The sun sets.", "A breeze whispers."]


class Model:
    def encode(self, sentences: list[str]) -> np.ndarray:
        return np.array([[len(text), text.count("a")] for text in sentences], dtype=np.float32)


@bentoml.service(image=image, envs=[{"name": "NORMALIZE", "value": "False"}])
class Embedder:
    def __init__(self) -> None:
        self.model = Model()

    @bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=5000)
    def encode(self, sentences: list[str] = SAMPLES) -> np.ndarray:
        return self.model.encode(sentences)

    @bentoml.api
    def similarity(self, one: str, other: str) -> float:
        first, second = self.model.encode([one, other])
        return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))
