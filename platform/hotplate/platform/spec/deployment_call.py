"""A call of a deployment that goes through the API, as its caller describes it; pure.

Whoever describes it chooses the lines of an HTTP request that the platform sends, so nothing of it
may reach beyond the deployment: no other host, no second request, no field by which the parts of
the platform know each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import Fields

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PATH_CHARS, HEADERS_MAX, HEADERS_BYTES = 8000, 64, 16 << 10
CONTENT_TYPE = "content-type"
PLATFORMS_TOKEN = "x-yatai-api-token"
OF_A_CONNECTION = frozenset(
    (
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Header fields that are for the next one on the way, and not for the deployment."""
SET_BY_US = frozenset(("content-length", "forwarded", "host", "origin", "referer"))
OURS = ("hotplate-", "sec-", "x-forwarded-", "x-hotplate-")
"""What names begin with that gateways, browsers and proxies send and nobody else."""
SIGN_IN = "hotplate_sign_in"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]{0,8000}")
_PATH = re.compile(r"/[\x21\x24-\x5b\x5d-\x7e]*")
"""Printable ASCII but for double quotes, `#` and backslashes."""
_VERSION = re.compile("[A-Za-z0-9][-A-Za-z0-9._]{0,99}")


@dataclass(frozen=True)
class DeploymentCall:
    """The request's first line and its fields."""

    method: str
    path: str
    """With its query."""
    headers: tuple[tuple[str, str], ...] = ()
    version: str = ""
    """Of a canary; empty = as the weights say."""

    def header(self, name: str) -> str:
        """The value of a field; empty where there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")


def deployment_call(fields: Fields, secrets: tuple[str, ...] = ()) -> DeploymentCall:
    """The call in `method`, `path`, `headers` and `version`; `secrets` are the caller's own, which
    the deployment must not see. Raises Invalid."""
    method = fields.text("method", "POST").upper()
    if method not in METHODS:
        raise Invalid(f"method: there is no {method!r:.80}; it is one of {', '.join(METHODS)}")
    version = fields.text("version", "")
    if version and not _VERSION.fullmatch(version):
        raise Invalid(f"version: {version!r:.80} is no version's id; leave it out for any")
    headers = fields.mapping("headers") if fields.has("headers") else {}
    return DeploymentCall(
        method, checked_path(fields.text("path", "/")), _checked_headers(headers, secrets), version
    )


def body_of(value: Any) -> tuple[bytes | None, str]:
    """What is sent of a `body`, and as what: text as it is, all else as JSON, null as nothing."""
    if value is None:
        return None, ""
    if isinstance(value, str):
        return value.encode(errors="replace"), ""
    return json.dumps(value, ensure_ascii=False).encode(), "application/json"


def checked_path(path: str) -> str:
    """Raises Invalid for what is no path below the deployment's own."""
    if len(path) > PATH_CHARS:
        raise Invalid(f"path: it has {len(path)} characters (limit {PATH_CHARS}); send a body")
    if not path.startswith("/") or path.startswith("//"):
        raise Invalid(
            f"path: {path!r:.80} is not a path of the deployment; begin it with one '/', without "
            "a scheme and a host"
        )
    if not _PATH.fullmatch(path):
        raise Invalid(
            f"path: {path!r:.80} has a space, a '#', a backslash or a character that is not ASCII; "
            "write it as %20, and so on"
        )
    plain = unquote(unquote(path.partition("?")[0])).replace("\\", "/")
    if any(part in (".", "..") for part in plain.split("/")):
        raise Invalid(f"path: {path!r:.80} has a '.' or '..'; write out the path that is meant")
    if any(ord(character) < 0x20 or character == "\x7f" for character in plain):
        raise Invalid(f"path: {path!r:.80} has a control character; leave it out")
    return path


def _checked_headers(
    headers: Mapping[str, Any], secrets: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    if len(headers) > HEADERS_MAX:
        raise Invalid(f"headers: there are {len(headers)} (limit {HEADERS_MAX}); send fewer")
    size_bytes = sum(len(name) + len(str(value)) for name, value in headers.items())
    if size_bytes > HEADERS_BYTES:
        raise Invalid(f"headers: they have {size_bytes} bytes (limit {HEADERS_BYTES}); send less")
    for name, value in headers.items():
        _check_header(name, value, secrets)
    return tuple(headers.items())


def _check_header(name: str, value: Any, secrets: tuple[str, ...]) -> None:
    """Raises Invalid, with no value: it may be secret."""
    at, key = f"headers.{name!r:.80}", name.lower()
    if not _NAME.fullmatch(name):
        raise Invalid(f"{at}: this is no name of a header; it has letters, digits and '-'")
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise Invalid(
            f"{at}: its value is not one line of up to 8000 characters of ISO 8859-1; leave out "
            "line breaks and control characters"
        )
    if key in OF_A_CONNECTION:
        raise Invalid(f"{at}: this is for one connection and is not passed on; leave it out")
    if key in SET_BY_US or key.startswith(OURS):
        raise Invalid(f"{at}: the platform sets this itself; leave it out")
    if key == PLATFORMS_TOKEN or (key == "cookie" and SIGN_IN in value):
        raise Invalid(f"{at}: deployments never see what opens the platform; leave it out")
    if any(secret and secret in value for secret in secrets):
        raise Invalid(f"{at}: it has your token of the platform, which is not for deployments")
