"""What services answer that mount applications, look at requests, or watch over themselves."""

from __future__ import annotations

from tests.support.services.public_services import Called


def shop(service: Called) -> None:
    assert service.http.get("/shop/items/1").json() == {"name": "tea", "price": 2.5}
    answer = service.http.get("/shop/items/7")
    assert (answer.status_code, answer.json()) == (404, {"detail": "There is no item 7."})
    assert service.http.get("/shop/items/seven").status_code == 422
    cake = {"name": "cake", "price": 4.0}
    assert service.http.put("/shop/items/2", json=cake).status_code == 401
    answer = service.http.put("/shop/items/2", json=cake, headers={"X-Customer": "Ada"})
    assert (answer.status_code, answer.json()) == (201, {"by": "Ada"})
    assert service.http.get("/shop/items/2").json() == cake
    assert service.bentoml.count() == 2
    with service.http.stream("GET", "/shop/ticks", params={"count": 2}) as stream:
        assert list(stream.iter_lines()) == ["0", "1"]
    assert service.http.get("/shop/who").json() == {"service": "Shop"}
    assert service.http.get("/shop/openapi.json").json()["info"]["title"] == "The shop"
    assert "/shop/openapi.json" in service.http.get("/shop/docs").text


def lives(service: Called) -> None:
    assert service.bentoml.story() == ["made", "connected", "started"]
    for path in ("/livez", "/readyz", "/healthz"):
        assert service.http.get(path).status_code == 200


def visits(service: Called) -> None:
    answer = service.http.post("/visit?from=mars", json={"name": "Ada"})
    assert answer.status_code == 201
    assert answer.headers["X-Greeting"] == "hello Ada"
    assert answer.cookies["visitor"] == "Ada"
    said = answer.json()
    assert (said["before"], said["query"], said["method"]) == (None, {"from": "mars"}, "POST")
    assert said["agent"].startswith("python-httpx")
    assert service.http.post("/visit", json={"name": "Bob"}).json()["before"] == "Ada"
    assert service.bentoml.visitors() == ["Ada", "Bob"]
    for how, status in (("input", 400), ("teapot", 418), ("else", 500)):
        answer = service.http.post("/fail", json={"how": how})
        assert answer.status_code == status, answer.text
        assert "secret" not in answer.text


def gate(service: Called) -> None:
    assert service.http.post("/gate/ping", json={}).text == "pong"
    assert service.http.post("/gate/secret", json={}).status_code == 403
    answer = service.http.post("/gate/secret", json={}, headers={"X-Key": "open sesame"})
    assert answer.text == "the cake is a lie"
    assert float(answer.headers["X-Seconds"]) >= 0
    assert service.http.get("/gate/app/greet/you").json() == {"message": "hello you"}
    page = {"Origin": "https://page.test"}
    asks = page | {"Access-Control-Request-Method": "POST"}
    for path in ("/gate/ping", "/gate/secret"):
        answer = service.http.options(path, headers=asks)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Access-Control-Allow-Origin"] == "https://page.test"
    answer = service.http.post("/gate/ping", json={}, headers=page)
    assert answer.headers["Access-Control-Allow-Credentials"] == "true"
    stranger = {"Origin": "https://elsewhere.test"}
    answer = service.http.post("/gate/ping", json={}, headers=stranger)
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert service.http.get("/gate/docs.json").status_code == 200
