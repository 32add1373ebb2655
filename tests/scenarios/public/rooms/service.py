"""Rooms to talk in, over WebSockets."""

from __future__ import annotations

import bentoml
from fastapi import FastAPI, WebSocket, WebSocketDisconnect

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

app = FastAPI()


@bentoml.service(image=image)
@bentoml.asgi_app(app, path="/rooms")
class Rooms:
    def __init__(self) -> None:
        self.rooms: dict[str, set[WebSocket]] = {}

    @app.websocket("/{name}")
    async def talk(self, websocket: WebSocket, name: str) -> None:
        if name == "closed":
            await websocket.close(4000, "This room is closed.")
            return
        await websocket.accept(subprotocol="talk")
        room = self.rooms.setdefault(name, set())
        room.add(websocket)
        try:
            async for said in websocket.iter_json():
                for member in room:
                    await member.send_json({"room": name, "heard": said["say"]})
        except WebSocketDisconnect:
            pass
        finally:
            room.discard(websocket)

    @bentoml.api
    async def members(self, name: str) -> int:
        return len(self.rooms.get(name, ()))
