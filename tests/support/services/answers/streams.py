"""What services answer that stream, talk, work in batches or in the background."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.imported_later import imported_later
from tests.support.patience import PATIENCE_S
from tests.support.services.public_services import Called

if TYPE_CHECKING:
    import httpx
else:
    httpx = imported_later("httpx")
httpx_ws, np = imported_later("httpx_ws"), imported_later("numpy")


def story(service: Called) -> None:
    with service.http.stream("POST", "/tell", json={"words": 3}) as answer:
        assert "".join(answer.iter_text()) == "Once upon a "
    assert "".join(service.bentoml.tell(words=2)) == "Once upon "
    with service.http.stream("POST", "/draw", json={"count": 3}) as answer:
        assert answer.read() == b"".join(bytes([n]) * 1000 for n in range(3))


def chat(service: Called) -> None:
    assert "".join(service.bentoml.generate(prompt="good morning")) == "GOOD MORNING "
    asked = {"messages": [{"role": "user", "content": "good morning to you"}]}
    with service.http.stream("POST", "/v1/events", json=asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events.pop() == "[DONE]"
    assert [json.loads(event)["token"] for event in events] == ["GOOD ", "MORNING ", "TO ", "YOU "]
    assert service.http.post("/v1/events", json={"messages": "hello"}).status_code == 400


def embedder(service: Called) -> None:
    assert service.http.post("/encode", json={"sentences": ["aa", "b"]}).json() == [[2, 2], [1, 0]]
    assert len(service.http.post("/encode", json={}).json()) == 2
    texts = [["a" * number] for number in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda text: service.bentoml.encode(sentences=text), texts))
    assert np.array_equal(np.concatenate(made), [[n, n] for n in range(1, 9)])
    assert service.bentoml.similarity(one="ab", other="aabb") == pytest.approx(1)


def rooms(service: Called) -> None:
    def room(name: str, http: httpx.Client):  # type: ignore[no-untyped-def]  # its generics differ
        return httpx_ws.connect_ws(f"{service.url}/rooms/{name}", http, subprotocols=["talk"])

    with httpx.Client() as one, httpx.Client() as other:
        with room("blue", one) as first:
            assert first.subprotocol == "talk"
            first.send_json({"say": "anybody?"})
            assert first.receive_json() == {"room": "blue", "heard": "anybody?"}
        with (
            pytest.raises((httpx_ws.WebSocketDisconnect, Exception)),
            room("closed", other) as socket,
        ):
            socket.receive_text()


def renders(service: Called) -> None:
    def submit(path: str, **fields: object) -> str:
        return str(service.http.post(f"/{path}/submit", json=fields).json()["task_id"])

    def ended(path: str, task_id: str) -> str:
        for _ in range(int(PATIENCE_S / 0.1)):
            found = service.http.get(f"/{path}/status", params={"task_id": task_id}).json()
            if found["status"] in ("completed", "failed"):
                return str(found["status"])
            time.sleep(0.1)
        raise TimeoutError(task_id)

    day, night = submit("render", scene="day"), submit("render", scene="night")
    assert (ended("render", day), ended("render", night)) == ("completed", "completed")
    first = service.http.get("/render/get", params={"task_id": day}).json()
    assert first["scene"] == "day"
    again = service.http.post("/render/retry", params={"task_id": day}).json()["task_id"]
    assert ended("render", again) == "completed"
    second = service.http.get("/render/get", params={"task_id": again}).json()
    assert second["rendered_at"] > first["rendered_at"]
    assert ended("render", submit("render", scene="broken")) == "failed"
    film = submit("film", frames=1000)
    assert ended("film", film) == "completed"
    answer = service.http.get("/film/get", params={"task_id": film})
    assert answer.content == b"frame" * 1000
    assert service.bentoml.scenes() == ["day", "night"]
    unknown = service.http.get("/render/status", params={"task_id": "nobody"})
    assert unknown.status_code == 404
