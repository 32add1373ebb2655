"""The smallest service: it needs nothing but BentoML."""

from __future__ import annotations

import bentoml


@bentoml.service(
    image=bentoml.images.Image(python_version="3.11"), traffic={"concurrency": 4}, threads=4
)
class Hello:
    @bentoml.api
    def greet(self, name: str = "world") -> str:
        return f"Hello, {name}!"
