"""Three services score a text at once, and a fourth weighs what they say."""

from __future__ import annotations

import asyncio

import bentoml
import numpy as np
from pydantic import BaseModel

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")


class Verdict(BaseModel):
    scores: dict[str, float]
    best: str


@bentoml.service
class Length:
    @bentoml.api
    def score(self, text: str) -> float:
        return float(len(text))


@bentoml.service
class Vowels:
    @bentoml.api(batchable=True)
    async def score(self, texts: list[str]) -> np.ndarray:
        return np.array([sum(map(text.count, "aeiou")) for text in texts], dtype=np.float64)


@bentoml.service(workers=2)
class Capitals:
    length = bentoml.depends(Length)

    @bentoml.api
    async def score(self, text: str) -> float:
        capitals = sum(map(str.isupper, text))
        return capitals / await self.length.to_async.score(text)


@bentoml.service(image=image)
class Ensemble:
    length = bentoml.depends(Length)
    vowels = bentoml.depends(Vowels)
    capitals = bentoml.depends(Capitals)

    @bentoml.api
    async def judge(self, text: str) -> Verdict:
        length, vowels, capitals = await asyncio.gather(
            self.length.to_async.score(text=text),
            self.vowels.to_async.score([text]),
            self.capitals.to_async.score(text),
        )
        scores = {"length": length, "vowels": float(vowels[0]), "capitals": capitals}
        return Verdict(scores=scores, best=max(scores, key=lambda name: scores[name]))
