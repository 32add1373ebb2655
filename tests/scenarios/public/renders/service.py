"""Works long on what it is given, in the background."""

import time
from pathlib import Path

import bentoml

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")


@bentoml.service(image=image, traffic={"external_queue": True})
class Renders:
    @bentoml.task
    def render(self, scene: str, seconds: float = 0.1) -> dict:
        time.sleep(seconds)
        if scene == "broken":
            raise ValueError("this scene cannot be rendered")
        return {"scene": scene, "rendered_at": time.time()}

    @bentoml.task
    async def film(self, frames: int, ctx: bentoml.Context) -> Path:
        film = Path(ctx.temp_dir, "film.bin")
        film.write_bytes(b"frame" * frames)
        return film

    @bentoml.api
    def scenes(self) -> list:
        return ["day", "night"]
