"""A chat model behind OpenAI's protocol. `CHAT_MODEL=ORG/NAME` takes one from Hugging Face."""

from __future__ import annotations

import os

import bentoml
from api import app

CHAT_MODEL = os.environ.get("CHAT_MODEL", "")
"""It is read when the bento is built, and kept in the bento; empty = the small model."""

image = bentoml.images.Image(python_version="3.11").python_packages("fastapi")
if CHAT_MODEL:
    image = image.python_packages("torch", "transformers")


@bentoml.asgi_app(app, path="/v1")
@bentoml.service(
    image=image,
    envs=[{"name": "CHAT_MODEL", "value": CHAT_MODEL}] if CHAT_MODEL else [],
    traffic={"timeout": 600},
)
class Chat:
    if CHAT_MODEL:
        files = bentoml.models.HuggingFaceModel(CHAT_MODEL)

    def __init__(self) -> None:
        if CHAT_MODEL:
            from hugging_face import HuggingFaceChat

            self.model = HuggingFaceChat(CHAT_MODEL, self.files)
        else:
            from small_model import SmallChat

            self.model = SmallChat()
