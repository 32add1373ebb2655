"""Headers, cookies, statuses, state, and work after the answer."""

from http import HTTPStatus

import bentoml

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")


class Teapot(bentoml.exceptions.BentoMLException):
    error_code = HTTPStatus.IM_A_TEAPOT


@bentoml.service(image=image)
class Visits:
    def __init__(self) -> None:
        self.remembered = []

    def remember(self, name: str) -> None:
        self.remembered.append(name)

    @bentoml.api
    async def visit(self, name: str, ctx: bentoml.Context) -> dict:
        ctx.response.status_code = 201
        ctx.response.headers["X-Greeting"] = f"hello {name}"
        ctx.response.set_cookie("visitor", name)
        ctx.response.background.add_task(self.remember, name)
        request = ctx.request
        return {
            "agent": request.headers.get("user-agent"),
            "before": request.cookies.get("visitor"),
            "query": dict(request.query_params),
            "method": request.method,
        }

    @bentoml.api
    def visitors(self) -> list:
        return self.remembered

    @bentoml.api
    def fail(self, how: str) -> str:
        if how == "input":
            raise bentoml.exceptions.InvalidArgument("that is no good input")
        if how == "teapot":
            raise Teapot("I am a teapot")
        raise RuntimeError("a secret of ours")
