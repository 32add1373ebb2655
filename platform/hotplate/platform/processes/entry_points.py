"""The roles that hold no state of the platform's: the gateway and the node's agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from hotplate.platform.errors import BadSetting, CannotStart

if TYPE_CHECKING:
    from hotplate.cache.agent import AgentSettings
    from hotplate.serving.gateway.server import GatewaySettings


def log_to_stderr() -> None:
    """One line per message, with the time of day and the part that speaks."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    # Every request of a client and every step of a migration is too much for a person to read.
    for chatty in ("aiohttp.access", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def run_agent(settings: AgentSettings) -> None:
    """Run this node's agent until SIGTERM, with a token of its own if it has none.

    Raises `CannotStart`.
    """
    from hotplate.cache.agent import serve
    from hotplate.cache.errors import CacheError

    log_to_stderr()
    try:
        asyncio.run(serve(settings, ready=_say("agent"), guarded=True))
    except (CacheError, OSError) as error:
        raise CannotStart(f"agent on {settings.host}:{settings.port}: {error}") from error


def run_gateway(settings: GatewaySettings) -> None:
    """Run a gateway until SIGTERM. Raises `CannotStart`, and `BadSetting` for a bad address."""
    from hotplate.serving.gateway.errors import BadRoutesFile
    from hotplate.serving.gateway.server import run
    from hotplate.serving.gateway.sources.routes_file import split_address

    log_to_stderr()
    if settings.admin:
        try:
            split_address(settings.admin)
        except ValueError:
            raise BadSetting(
                f"--admin {settings.admin} is not an address: write HOST:PORT"
            ) from None
    try:
        run(settings, ready=_say("gateway"))
    except BadRoutesFile as error:
        raise CannotStart(str(error)) from error
    except OSError as error:
        where = f" with --admin {settings.admin}" if settings.admin else ""
        raise CannotStart(f"the gateway{where} cannot start: {error}") from error


def _say(role: str) -> Callable[[object], None]:
    return lambda where: logging.getLogger(f"hotplate.{role}").info("ready: %s", where)
