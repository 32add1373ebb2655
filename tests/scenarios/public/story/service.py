"""Tells a story word by word, by a generator that is not async."""

from typing import Generator

import bentoml

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

STORY = "Once upon a time there was a service that nobody had written for us."


@bentoml.service(image=image, traffic={"timeout": 300})
class Story:
    @bentoml.api
    def tell(self, words: int = 5) -> Generator[str, None, None]:
        for word in STORY.split()[:words]:
            yield f"{word} "

    @bentoml.api
    def draw(self, count: int) -> Generator[bytes, None, None]:
        for number in range(count):
            yield bytes([number]) * 1000
