"""A program with OpenAI's protocol: the service says how it is started, BentoML passes calls on."""

from __future__ import annotations

import os
from pathlib import Path

import bentoml

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

PORT = 8000
MODEL = "tiny/echo"


@bentoml.service(
    image=image,
    name="tiny-engine",
    labels={"openai_endpoint": "/v1"},
    traffic={"timeout": 300},
    endpoints={"livez": "/health", "readyz": "/health"},
    envs=[{"name": "ENGINE_GREETING", "value": "You said"}],
)
class Engine:
    def __command__(self) -> list[str]:
        program = Path(__file__).parent / "engine.py"
        return ["python", str(program), "--port", str(PORT), "--served-model-name", MODEL]

    def __metrics__(self, content: str) -> str:
        return f"{content}\nengine_pid {os.getpid()}\n"
