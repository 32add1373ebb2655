"""The gateway as a process: started, linked to the control plane, stopped by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvloop

from hotplate.cache import descriptors
from hotplate.serving.gateway.admin import Admin
from hotplate.serving.gateway.gateway import Gateway
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.link import Link
from hotplate.serving.gateway.table_file import TableFile


@dataclass(frozen=True)
class GatewaySettings:
    """What one gateway process is told."""

    control_plane: str
    """The control plane's address, http(s)://host:port."""
    token: str = field(repr=False)
    """The bearer token that lets this gateway in there."""
    state_dir: Path
    """Where the last route table is kept."""
    admin_host: str = "127.0.0.1"
    """Where operators ask; not for callers."""
    admin_port: int = 0
    """0 = any free port."""
    grace_s: float = 30.0
    """How long running requests may take to finish after SIGTERM."""
    limits: Limits = field(default_factory=Limits)
    """Bounds on callers and on connections."""


async def serve(settings: GatewaySettings, ready: Callable[[int], None]) -> None:
    """Serves until SIGTERM or SIGINT, then ends in order.

    `ready` is called once with the admin port, when the routes of the last table (if there is one
    on disk) are being listened on. Raises OSError when the admin port cannot be bound.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    gateway = Gateway(_shared(settings.limits, descriptors.allow_many()))
    file = TableFile(settings.state_dir)
    link = Link(gateway, file, url=settings.control_plane, token=settings.token)
    admin = Admin(gateway, link)
    port = await admin.start(settings.admin_host, settings.admin_port)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    grace_s = 0.0
    linking = stopped = None
    try:
        last = file.load()
        if last is not None:
            await gateway.apply(last)
        linking = asyncio.create_task(link.run())
        ready(port)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, linking}, return_when=asyncio.FIRST_COMPLETED)
        grace_s = settings.grace_s
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await gateway.close(grace_s)
        await admin.close()
        for task in (stopped, linking):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task  # the link only ends by itself by a bug, which is raised here


def _shared(limits: Limits, descriptors_most: int) -> Limits:
    """No route may take so many connections that there are none left for the others."""
    return replace(limits, connections=min(limits.connections, descriptors_most // 4))


def run(settings: GatewaySettings, ready: Callable[[int], None]) -> None:
    """`serve` on an event loop of its own."""
    uvloop.run(serve(settings, ready))
