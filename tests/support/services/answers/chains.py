"""What services answer that call others, and those that are programs."""

from __future__ import annotations

import pytest

from tests.support.imported_later import imported_later
from tests.support.services.public_services import Called

exceptions = imported_later("bentoml.exceptions")


def translator(service: Called) -> None:
    assert service.http.post("/translate", json={"text": "bread water"}).text == "Brot Wasser"
    assert service.bentoml.translate_async(text="water bread") == "Wasser Brot"
    assert service.http.post("/spell", json={"text": "bread"}).text == "b-r-e-a-d-"
    answer = service.http.post("/translate_async", json={"text": "wine"})
    assert answer.status_code == 404, answer.text
    assert "no translation of 'wine'" in answer.text


def ensemble(service: Called) -> None:
    answer = service.http.post("/judge", json={"text": "Tea And Milk"}).json()
    assert answer["scores"] == {"length": 12, "vowels": 3, "capitals": 0.25}
    assert answer["best"] == "length"
    assert service.bentoml.judge(text="AEIOU") == {
        "scores": {"length": 5, "vowels": 0, "capitals": 1},
        "best": "length",
    }


def site(service: Called) -> None:
    answer = service.http.get("/hello.txt")
    assert answer.text == "Hello from the site.\n"
    assert "hello.txt" in service.http.get("/").text
    assert service.http.get("/nothing.txt").status_code == 404


def engine(service: Called) -> None:
    assert service.http.get("/v1/models").json()["data"][0]["id"] == "tiny/echo"
    asked = {"model": "tiny/echo", "prompt": "good morning"}
    answer = service.http.post("/v1/completions", json=asked).json()
    assert answer["choices"][0]["text"] == "You said good morning"
    with service.http.stream("POST", "/v1/completions", json=asked | {"stream": True}) as stream:
        events = [line for line in stream.iter_lines() if line]
    assert events == ["data: You", "data: said", "data: good", "data: morning"]
    assert "engine_pid" in service.http.get("/metrics").text


def pool(service: Called) -> None:
    answers = [service.http.post("/work", json={"seconds": 0}).json() for _ in range(8)]
    assert {answer["worker"] for answer in answers} <= {1, 2}
    assert len({answer["pid"] for answer in answers}) <= 2
    with pytest.raises(exceptions.BentoMLException):
        service.bentoml.work(seconds="long")
