"""Where the node's agent lends files to a plain process: asked over its HTTP interface."""

from __future__ import annotations

import http.client
import json
import os
from typing import NamedTuple

from hotplate.cache import own_token
from hotplate.machine.address import Address

ADDRESS = "HOTPLATE_AGENT"
"""Environment: `HOST:PORT` of the agent on this machine."""
TOKEN_FILE = "HOTPLATE_AGENT_TOKEN_FILE"
"""Environment: the file with the agent's token, where it has one."""
_RESPONSE_S = 30.0
"""An agent that serves hundreds of replicas may be busy; one that is gone refuses at once."""


class AgentEndpoint(NamedTuple):
    """The Unix socket through which files are opened by URL, and the token for it."""

    socket_path: str
    token: str


def find_endpoint(url: str) -> AgentEndpoint:
    """The Unix socket of the agent that `HOTPLATE_AGENT` names, and its token.

    Raises OSError with a sentence that begins with `url`, the file that is being opened.
    """
    address = os.environ.get(ADDRESS, "")
    if not address:
        raise OSError(f"{url}: a URL needs a node agent; set {ADDRESS}=HOST:PORT")
    try:
        parsed = Address.parse(address)
    except ValueError:
        raise OSError(f"{url}: {ADDRESS}={address} is not HOST:PORT") from None
    token = _token(url) or own_token.find(address)
    try:
        status, body = _ask(parsed, token)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise OSError(
            f"{url}: no agent answers at {address} ({error}); start `hotplate agent` there or "
            f"correct {ADDRESS}"
        ) from error
    if status == 401:
        raise OSError(f"{url}: the agent at {address} wants its token; set {TOKEN_FILE}=FILE")
    if status != 200 or not isinstance(body, dict) or not isinstance(body.get("socket"), str):
        raise OSError(
            f"{url}: what answers at {address} (status {status}) is no agent of this kind"
        )
    if not os.path.exists(body["socket"]):
        raise OSError(
            f"{url}: the agent at {address} lends files on its own machine only, by its socket "
            f"{body['socket']}, which is not on this one"
        )
    return AgentEndpoint(body["socket"], token)


def _token(url: str) -> str:
    path = os.environ.get(TOKEN_FILE)
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OSError(f"{url}: {TOKEN_FILE}={path} cannot be read ({error})") from error


def _ask(address: Address, token: str) -> tuple[int, object]:
    connection = http.client.HTTPConnection(*address, timeout=_RESPONSE_S)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", "/v1/status", headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
