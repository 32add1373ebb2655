"""The sizes that `--instance-type` may name."""

from __future__ import annotations

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.controller.interface import ControllerApi


class InstanceTypeRoutes:
    """What a deployment may name as `instance_type`."""

    def __init__(self, controller: ControllerApi) -> None:
        self._controller = controller

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/v1/instance_types", self.list)]

    async def list(self, request: web.Request) -> web.Response:
        """A bare array, unlike every other list."""
        types = self._controller.instance_types()
        return web.json_response([views.instance_type(item) for item in types])
