"""Changes pictures, as PIL has them and as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import bentoml
from bentoml.validators import ContentType
from PIL import Image
from PIL.Image import Image as Picture

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")


@bentoml.service(image=image)
class Pictures:
    @bentoml.api
    def resize(self, picture: Picture, width: int = 64, height: int = 64) -> Picture:
        return picture.resize((width, height), Image.Resampling.LANCZOS)

    @bentoml.api
    def to_jpeg(
        self, picture: Annotated[Path, ContentType("image/png")]
    ) -> Annotated[Path, ContentType("image/jpeg")]:
        made = picture.with_suffix(".jpg")
        Image.open(picture).convert("RGB").save(made)
        return made

    @bentoml.api(batchable=True)
    async def brightest(self, pictures: list[Picture]) -> list[int]:
        return [picture.convert("L").getextrema()[1] for picture in pictures]
