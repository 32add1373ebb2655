"""A process that serves the API until it is killed: `served_api.py FOLDER`.

Prints `PORT TOKEN` once it can be called.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from tests.support.control_plane.controller_fake import FakeController


async def serve(folder: str) -> None:
    store = Store(Database(f"sqlite:///{folder}/hotplate.db"))
    user = store.identities.ensure_user("acme", "ada", "ada@example.com")
    token = store.tokens.add_token(user, "laptop")
    blobs = BlobStore(f"file://{folder}/blobs")
    runner = web.AppRunner(make_app(store, blobs, FakeController(store), ApiSettings()))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], token, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
