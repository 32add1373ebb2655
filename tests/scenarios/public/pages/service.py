"""Pages of a Flask application, and of one of Starlette beside it."""

import bentoml
import numpy as np
from flask import Flask, jsonify, request
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

flask_app = Flask(__name__)


@flask_app.route("/sum", methods=["POST"])
def add():
    return jsonify(sum=float(np.sum(request.get_json()["numbers"])))


@flask_app.route("/form", methods=["GET", "POST"])
def form():
    if request.method == "POST":
        return f"<p>{request.form['name']}</p>"
    return "<form method='post'><input name='name'></form>"


async def home(request) -> HTMLResponse:
    return HTMLResponse(f"<a href='{request.url_for('old')}'>old</a>")


async def old(request) -> RedirectResponse:
    return RedirectResponse(request.url_for("home"))


site = Starlette(routes=[Route("/", home, name="home"), Route("/old", old, name="old")])


@bentoml.service(image=image)
@bentoml.asgi_app(site, path="/site")
class Pages:
    @bentoml.api
    def ping(self) -> str:
        return "pong"


Pages.mount_wsgi_app(flask_app, path="/flask")
