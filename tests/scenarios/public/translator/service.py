"""One service calls another: in turns, at once, and as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import bentoml

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

WORDS = {"bread": "Brot", "water": "Wasser"}


@bentoml.service(resources={"cpu": "100m"})
class Dictionary:
    @bentoml.api
    def look_up(self, word: str) -> str:
        if word not in WORDS:
            raise bentoml.exceptions.NotFound(f"no translation of {word!r}")
        return WORDS[word]

    @bentoml.api
    async def spell(self, word: str) -> AsyncGenerator[str, None]:
        for letter in word:
            yield f"{letter}-"


@bentoml.service(image=image, resources={"cpu": "100m"})
class Translator:
    dictionary = bentoml.depends(Dictionary)

    @bentoml.api
    def translate(self, text: str) -> str:
        return " ".join(self.dictionary.look_up(word) for word in text.split())

    @bentoml.api
    async def translate_async(self, text: str) -> str:
        return " ".join([await self.dictionary.to_async.look_up(word) for word in text.split()])

    @bentoml.api
    async def spell(self, text: str) -> AsyncGenerator[str, None]:
        async for letter in self.dictionary.spell(text):
            yield letter
