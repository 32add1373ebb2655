"""The program: `python engine.py --port PORT --served-model-name NAME`."""

from __future__ import annotations

import argparse
import os

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--served-model-name", required=True)
flags = parser.parse_args()
app = FastAPI()


@app.get("/health")
async def health() -> None:
    pass


@app.get("/v1/models")
async def models() -> dict:
    return {"object": "list", "data": [{"id": flags.served_model_name, "object": "model"}]}


@app.post("/v1/completions")
async def complete(asked: dict):
    text = f"{os.environ['ENGINE_GREETING']} {asked['prompt']}"
    if asked.get("stream"):
        words = (f"data: {word}\n\n" for word in text.split())
        return StreamingResponse(words, media_type="text/event-stream")
    return {"model": asked["model"], "choices": [{"index": 0, "text": text}]}


uvicorn.run(app, port=flags.port)
