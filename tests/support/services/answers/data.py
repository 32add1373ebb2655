"""What services answer that take models, files and arrays."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.imported_later import imported_later
from tests.support.services.public_services import Called

exceptions = imported_later("bentoml.exceptions")
np = imported_later("numpy")


def orders(service: Called) -> None:
    order: dict[str, Any] = {
        "lines": [
            {"product": "tea", "count": 2, "cents_each": 250},
            {"product": "coffee", "count": 1, "cents_each": 500},
        ],
        "ship_to": {"street": "Main Street 1", "country": "CH"},
        "ordered": "2026-02-27",
    }
    receipt = {"cents": 900, "ship_to": order["ship_to"], "arrives": "2026-03-02"}
    answer = service.http.post("/price", json={"order": order, "discount": 0.1})
    assert answer.json() == receipt
    assert service.bentoml.price(order=order, discount=0.1) == receipt
    smaller = order | {"lines": order["lines"][:1], "note": "ring twice"}
    answer = service.http.post("/largest", json={"orders": [smaller, order]})
    assert answer.json() == order | {"note": None}
    answer = service.http.post("/largest", json={"orders": []})
    assert (answer.status_code, "there are no orders" in answer.text) == (400, True)
    for wrong in (
        order | {"lines": []},
        order | {"ship_to": {"street": "Main Street 1", "country": "Switzerland"}},
        order | {"lines": [{"product": "milk", "count": 1, "cents_each": 1}]},
        order | {"ordered": "yesterday"},
    ):
        answer = service.http.post("/price", json={"order": wrong})
        assert answer.status_code == 400, answer.text
        (where, *_) = (each["loc"] for each in answer.json()["detail"])
        assert where[0] == "order"
    assert service.http.post("/price", json={"order": order, "discount": 1}).status_code == 400
    assert service.http.post("/price", content="{").status_code == 400
    with pytest.raises(exceptions.InvalidArgument):
        service.bentoml.price(order=order, discount=-1)


def documents(service: Called) -> None:
    text = b"the cat, the dog and the end"
    sent = {"document": ("a.txt", text, "text/plain")}
    assert service.http.post("/count", files=sent).json() == 3
    assert service.http.post("/count", files=sent, data={"word": "dog"}).json() == 1
    answer = service.http.post("/append", files=sent, data={"line": " of it"})
    assert answer.content == text + b" of it"
    assert answer.headers["content-type"].startswith("text/plain")
    assert service.http.post("/keep", files=sent).json() == len(text)
    parts = [bytes([number]) * 300_000 for number in range(3)]
    several = [("documents", (f"{n}.bin", part)) for n, part in enumerate(parts)]
    answer = service.http.post("/join", files=several)
    assert answer.content == b"".join(parts)
    assert 'filename="joined.bin"' in answer.headers["content-disposition"]
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes(text)
        made = service.bentoml.append(document=path, line="!")
        assert made.read_bytes() == text + b"!"
    assert service.http.post("/count", json={"word": "the"}).status_code == 400


def arrays(service: Called) -> None:
    rows = [[1.0, 2.0, 3.0, 4.0], [0.5, 0.5, 0.5, 0.5]]
    doubled = [[2 * number for number in row] for row in rows]
    assert service.http.post("/scale", json={"rows": rows}).json() == doubled
    assert service.http.post("/scale", json={"by": 1}).json() == rows[:1]
    made = service.bentoml.scale(rows=np.array(rows), by=3)
    assert np.array_equal(made, 3 * np.array(rows))
    assert service.http.post("/norm", json=[3, 4]).json() == 5
    answer = service.http.post("/scale", json={"rows": [[1, 2]]})
    assert answer.status_code == 400, answer.text


def classifier(service: Called) -> None:
    rows = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.1, 5.6, 2.4]]
    assert service.http.post("/classify", json={"rows": rows}).json() == ["setosa", "virginica"]
    assert service.bentoml.classify(rows=np.array(rows)) == ["setosa", "virginica"]
    about = service.http.post("/about", json={}).json()
    assert about == {"labels": {"kind": "centres"}, "accuracy": 0.9}


def routes(service: Called) -> None:
    answer = service.http.post("/v1/ask", json={"text": "why", "times": 2})
    assert answer.json() == {"answer": "WHYWHY", "by": "nobody"}
    assert service.http.post("/v1/ask", json={"text": "w"}).status_code == 400
    assert service.http.post("/v1/ask", json={"text": "why", "times": 4}).status_code == 400
    assert service.http.post("/v2/ask/now", json={}).text == "why?"
    assert service.bentoml.ask_now(text="how") == "how?"
    assert service.http.post("/read", content=b"abc").text == "cba"
    assert service.http.post("/join", json=["to", "and", "fro"]).text == "to and fro"
    assert service.http.post("/mirror", json={"x": 1}).json() == {"x": 0, "y": 1}
    assert service.http.post("/add", json={"first": 2}).json() == 3
    assert service.bentoml.join(["a", "b"]) == "a b"
    paths = service.http.get("/docs.json").json()["paths"]
    assert {"/v1/ask", "/v2/ask/now", "/read", "/join", "/mirror", "/add"} <= paths.keys()
