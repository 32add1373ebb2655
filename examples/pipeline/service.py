"""The passages of a page that answer a question: one service cleans and splits, one embeds."""

from __future__ import annotations

import asyncio
import logging

import bentoml
import numpy as np
from embedding import embedding
from page import passages_of
from pydantic import BaseModel

image = bentoml.images.Image(python_version="3.11").python_packages("numpy")
log = logging.getLogger("bentoml")


class Found(BaseModel):
    text: str
    score: float


@bentoml.service(image=image)
class Embedder:
    """The expensive part: requests that arrive together are one batch."""

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=10_000)
    def embed(self, texts: list[str]) -> np.ndarray:
        log.info("%d texts in one batch", len(texts))
        return np.stack([embedding(text) for text in texts])


@bentoml.service(image=image)
class Finder:
    """The cheap part, which waits for `Embedder` most of its time."""

    embedder = bentoml.depends(Embedder)

    @bentoml.api
    async def find(self, page: str, question: str, count: int = 3) -> list[Found]:
        """The passages of an HTML page that are most like the question, best first."""
        passages = passages_of(page)
        texts = [question, *passages]
        vectors = await asyncio.gather(*(self.embedder.to_async.embed([text]) for text in texts))
        scores = np.concatenate(vectors[1:]) @ vectors[0][0] if passages else np.empty(0)
        best = np.argsort(-scores)[:count]
        return [Found(text=passages[n], score=round(float(scores[n]), 3)) for n in best]
