"""Our own routes about the keys of secrets, which only operators see and change."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from hotplate.platform.log_format import events
from hotplate.platform.store.org_secrets import Secrets, encrypt_anew
from hotplate.platform.store.records import KeyUse

ROOT = "/api/v1/hotplate/keys"


class KeyRoutes:
    """What keys there are, never the keys themselves; and a new one for all secrets."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._turn = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        return [web.get(ROOT, self.list_all), web.post(f"{ROOT}/rotate", self.rotate)]

    async def list_all(self, _: web.Request) -> web.Response:
        """`GET`: the keys, the newest first. Raises SecretsUnreadable."""
        return await self._answer()

    async def rotate(self, _: web.Request) -> web.Response:
        """`POST /rotate`: make a key, encrypt every value anew with it, and forget the keys that
        nothing needs then. One that was cut is gone on with at the next start or by the next call.
        Raises SecretsUnreadable."""
        async with self._turn:
            await self._secrets.run(self._secrets.add_key)
            await encrypt_anew(self._secrets)
        events.info("secrets are encrypted with a new key")
        return await self._answer()

    async def _answer(self) -> web.Response:
        keys = await self._secrets.run(self._secrets.key_uses)
        return web.json_response({"items": [key_json(key) for key in keys], "total": len(keys)})


def key_json(key: KeyUse) -> dict[str, Any]:
    """`values`: how many are encrypted with it."""
    return {
        "id": key.id,
        "made_at": key.made_at.isoformat(),
        "encrypts": key.encrypts,
        "values": key.values,
    }
