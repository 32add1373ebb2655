"""`bentoml cloud login` in a browser: the client asks for a code, a member approves it on a page
(`dashboard/sign_in_pages`), and the client collects the token that was made for it."""

from __future__ import annotations

import asyncio

from aiohttp import web

from hotplate.platform.api.bentocloud.auth import Auth
from hotplate.platform.api.web.tries import WrongTries
from hotplate.platform.errors import Conflict, Forbidden, TooManyTries, Unauthorized
from hotplate.platform.store.sign_ins import APPROVED, DENIED, SignIns

CODES_MOST = 60
"""Codes that one address may ask for in a minute: each is a row until it expires."""


class LoginRoutes:
    def __init__(self, sign_ins: SignIns, auth: Auth) -> None:
        self._sign_ins = sign_ins
        self._auth = auth
        self._codes = WrongTries(CODES_MOST)

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/v1/auth/code", self.code), web.get("/api/v1/auth/token", self.token)]

    async def code(self, request: web.Request) -> web.Response:
        """`{"code"}`, with which the client prints the page's address. Raises TooManyTries."""
        address = self._auth.address(request)
        if (wait_s := self._codes.wrong(address, asyncio.get_running_loop().time())) is not None:
            raise TooManyTries(address, wait_s)
        return web.json_response({"code": await self._sign_ins.run(self._sign_ins.ask)})

    async def token(self, request: web.Request) -> web.Response:
        """`?code=`: `{"token"}`, once, when the login was approved. The client asks every second
        until then, and takes any status of 2xx for a token. Raises Conflict, Forbidden,
        Unauthorized."""
        code = request.query.get("code", "")
        try:
            if not code.isascii():
                raise Unauthorized("the login's code is unknown; run 'bentoml cloud login' again")
            state, secret = await self._sign_ins.run(self._sign_ins.collect, code)
        except Unauthorized as refusal:
            self._auth.refuse(request, refusal)
        if state == DENIED:
            raise Forbidden("the login was denied; run 'bentoml cloud login' again")
        if state != APPROVED:
            raise Conflict("the login waits to be approved in a browser")
        return web.json_response({"token": secret})
