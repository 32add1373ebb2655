"""The link in what `hotplate up` prints, by which a person signs in once."""

from __future__ import annotations

import logging
import os
import stat
from typing import TextIO

import aiohttp

log = logging.getLogger("hotplate.up")

ASK_S = 10.0


def may_show_secrets(output: TextIO) -> bool:
    """Whether what is printed there is read and gone: on a terminal, or by a program that reads it.
    A file or a journal stays, and others may read it."""
    try:
        descriptor = output.fileno()
        return os.isatty(descriptor) or stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (OSError, ValueError):
        return False


async def sign_in_link(url: str, token: str) -> str:
    """For the user of the token; empty where the API gives none, which is no reason not to start.

    `url` is the API's.
    """
    limit, headers = aiohttp.ClientTimeout(ASK_S), {"X-YATAI-API-TOKEN": token}
    try:
        async with aiohttp.ClientSession(timeout=limit, headers=headers) as http:
            async with http.get(f"{url}/api/v1/auth/current", raise_for_status=True) as answer:
                user = (await answer.json())["name"]
            async with http.post(
                f"{url}/api/v1/hotplate/users/{user}/link", json={}, raise_for_status=True
            ) as answer:
                return str((await answer.json())["url"])
    except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
        log.warning("there is no link to sign in by: %s", error)
        return ""
