"""What services answer that have packages of their own: pandas, Pillow, Flask."""

from __future__ import annotations

import io

from tests.support.imported_later import imported_later
from tests.support.services.public_services import Called

Image, pd = imported_later("PIL.Image"), imported_later("pandas")


def tables(service: Called) -> None:
    sales = [
        {"city": "Bern", "amount": 3},
        {"city": "Rome", "amount": 5},
        {"city": "Bern", "amount": 4},
    ]
    totals = [{"city": "Bern", "amount": 7}, {"city": "Rome", "amount": 5}]
    assert service.http.post("/totals", json={"sales": sales}).json() == totals
    answer = service.http.post("/totals", json={"sales": sales, "least": 6})
    assert answer.json() == totals[:1]
    made = service.bentoml.totals(sales=pd.DataFrame(sales))
    assert made.to_dict("records") == totals
    csv = {"csv": ("sales.csv", pd.DataFrame(sales).to_csv(index=False).encode(), "text/csv")}
    assert service.http.post("/total", files=csv).json() == 12
    assert service.http.post("/totals", json={"least": 6}).status_code == 400


def png(width: int, height: int, colour: str) -> io.BytesIO:
    file = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "png")
    file.seek(0)
    return file


def pictures(service: Called) -> None:
    sent = {"picture": ("red.png", png(8, 6, "red"), "image/png")}
    answer = service.http.post("/resize", files=sent, data={"width": "3", "height": "2"})
    made = Image.open(io.BytesIO(answer.content))
    assert (made.size, made.getpixel((1, 1))) == ((3, 2), (255, 0, 0))
    made = service.bentoml.resize(picture=Image.open(png(8, 6, "blue")))
    assert (made.size, made.getpixel((9, 9))) == ((64, 64), (0, 0, 255))
    sent = {"picture": ("red.png", png(8, 6, "red"), "image/png")}
    answer = service.http.post("/to_jpeg", files=sent)
    assert answer.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(answer.content)).format == "JPEG"
    several = [("pictures", ("a.png", png(2, 2, colour))) for colour in ("white", "black")]
    assert service.http.post("/brightest", files=several).json() == [255, 0]


def pages(service: Called) -> None:
    assert service.http.post("/flask/sum", json={"numbers": [1, 2.5]}).json() == {"sum": 3.5}
    assert "<form" in service.http.get("/flask/form").text
    assert service.http.post("/flask/form", data={"name": "Ada"}).text == "<p>Ada</p>"
    assert service.http.get("/flask/nothing").status_code == 404
    assert f"href='{service.url}/site/old'" in service.http.get("/site/").text
    answer = service.http.get("/site/old")
    assert (answer.status_code, answer.headers["location"]) == (307, f"{service.url}/site/")
    assert service.bentoml.ping() == "pong"
