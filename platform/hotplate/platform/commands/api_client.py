"""How commands ask a running platform: calls below `/api/v1/hotplate`."""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from hotplate.platform.commands import secret_flags
from hotplate.platform.errors import NotFound, PlatformError, Unreachable
from hotplate.platform.processes.data_dir import DEFAULT, DataDir

TIMEOUT_S = 30
OURS = "/api/v1/hotplate"


def add_platform_flags(command: argparse.ArgumentParser) -> None:
    """The flags that say which platform a command asks."""
    command.add_argument("--data", default=DEFAULT, help=f"data directory of `up` ({DEFAULT})")
    command.add_argument("--endpoint", help="URL of a platform elsewhere")
    command.add_argument("--token-file", help="file with the token for --endpoint")
    command.add_argument("--token", help=argparse.SUPPRESS)
    command.add_argument(
        "--organization", metavar="ORG", help="act for it, where you may act for several"
    )


class ApiClient:
    """Calls one platform with one token."""

    def __init__(self, endpoint: str, token: str, organization: str = "") -> None:
        """`organization`: the one to act for; empty = the token's."""
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"X-YATAI-API-TOKEN": token}
        if organization:
            self._headers["X-Hotplate-Organization"] = organization

    @staticmethod
    def of(arguments: argparse.Namespace) -> ApiClient:
        """By `--endpoint` and its token, else by the data directory of an `up` on this machine."""
        named = arguments.token_file
        token = secret_flags.read(named) if named else arguments.token or ""
        organization = getattr(arguments, "organization", None) or ""
        if arguments.endpoint:
            return ApiClient(arguments.endpoint, token, organization)
        data = DataDir.named(arguments.data)
        noted = data.noted("endpoint")
        if noted is None:
            raise Unreachable(
                f"no platform has run in {data.root}: start it with 'hotplate up', "
                "or name its --data, or --endpoint and --token-file"
            )
        return ApiClient(noted["url"], token or data.secret("admin-token"), organization)

    def __call__(self, path: str) -> Any:
        return self.call("GET", path)

    def put(self, path: str, content: dict[str, Any]) -> Any:
        """PUTs a JSON object."""
        return self.call("PUT", path, content)

    def call(
        self,
        method: str,
        path: str,
        content: dict[str, Any] | None = None,
        root: str = OURS,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """The JSON that a route below `root` answers. Raises NotFound and Unreachable."""
        url = f"{self._endpoint}{root}{path}"
        body = None if content is None else json.dumps(content).encode()
        try:
            request = urllib.request.Request(url, body, self._headers, method=method)
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise _failure(error) from error
        except (ValueError, HTTPException) as error:  # it is no URL, or no platform is there
            raise Unreachable(
                f"{self._endpoint} is not a platform's URL ({error}): write http://HOST:PORT"
            ) from error
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(
                f"{self._endpoint} does not answer ({reason}): is 'hotplate up' running?"
            ) from error


def _failure(error: urllib.error.HTTPError) -> PlatformError:
    body = error.read().decode(errors="replace")
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = body.strip() or f"HTTP {error.code}"
    return NotFound(message) if error.code == 404 else Unreachable(message)
