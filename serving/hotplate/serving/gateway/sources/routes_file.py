"""A static file of routes (TOML): what a gateway serves that has no control plane. Pure.

    admin = "127.0.0.1:9900"
    [[deployment]]
    name = "chat"
    listen = "127.0.0.1:9001"
    [deployment.weights]
    acme = 3
    [[deployment.replica]]
    address = "127.0.0.1:9101"
    concurrency = 2

`DEPLOYMENT`, `REPLICA` and `FILE` name every key with what it may be. Defaults are those of
`Route` and `ReplicaRoute`. A replica's address is its id.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hotplate.machine.address import Address
from hotplate.machine.unix_address import unix_path
from hotplate.serving.gateway.errors import BadRoutesFile
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route

LONGEST_S = 366 * 86400
"""A year, which is more than anybody needs and far below what a clock can count."""
MOST_BYTES = 1 << 50
MOST_REQUESTS = 1_000_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_FIELD = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class RoutesFile:
    """The content of the file."""

    routes: tuple[Route, ...]
    admin: str = ""
    """host:port of the operator's listener; empty = the file does not say."""


@dataclass(frozen=True)
class Key:
    """What the value of a key may be."""

    expected: str
    good: Callable[[Any], bool]
    required: bool = False


def read(path: Path) -> RoutesFile:
    """Reads the file. Raises `BadRoutesFile` with a sentence that names it."""
    try:
        content = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadRoutesFile(f"{path} cannot be read: {why}.") from error
    return parse(content, path)


def parse(content: str, path: Path) -> RoutesFile:
    """Reads the file's content; paths in it are relative to `path`'s folder.

    Raises `BadRoutesFile`: one sentence with the file, the key, its value and what is expected.
    """
    try:
        data = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise BadRoutesFile(f"{path} is not TOML: {error}.") from None
    if not data:
        raise BadRoutesFile(
            f"{path} is empty: write a [[deployment]], or 'deployment = []' to serve none."
        )
    _check(data, FILE, str(path))
    routes = [_route(entry, path, n) for n, entry in enumerate(data.get("deployment", ()), 1)]
    _distinct("name", (route.name for route in routes), path)
    listens = [str(Address(route.host, route.port)) for route in routes]
    _distinct("listen", [*listens, data.get("admin", "")], path)
    return RoutesFile(tuple(routes), data.get("admin", ""))


def _route(entry: Mapping[str, Any], path: Path, number: int) -> Route:
    name = entry.get("name")
    where = f"{path}: deployment {name!r}" if name else f"{path}: [[deployment]] number {number}"
    _check(entry, DEPLOYMENT, where)
    values = dict(entry)
    if values.get("tls_key") and not values.get("tls_certificate"):
        raise BadRoutesFile(f"{where}: tls_key = {values['tls_key']!r} needs a tls_certificate.")
    for key in ("tls_certificate", "tls_key"):
        if values.get(key):
            values[key] = str(path.parent / values[key])
    host, port = Address.parse(values.pop("listen"))
    replicas = values.pop("replica", ())
    for at, replica in enumerate(replicas, 1):
        _check(replica, REPLICA, f"{where}: [[deployment.replica]] number {at}")
    _distinct("address", (replica["address"] for replica in replicas), where)
    digests = values.pop("token_digests", None)
    return Route(
        host=host,
        port=port,
        replicas=tuple(ReplicaRoute(id=replica["address"], **replica) for replica in replicas),
        weights=tuple(values.pop("weights", {}).items()),
        token_digests=None if digests is None else tuple(digest.lower() for digest in digests),
        **values,
    )


def _check(table: Mapping[str, Any], keys: Mapping[str, Key], where: str) -> None:
    for name, value in table.items():
        if name not in keys:
            near = get_close_matches(name, keys, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(keys)}."
            raise BadRoutesFile(f"{where}: no key is called {name!r}; {hint}")
        if not keys[name].good(value):
            shown = repr(value) if len(repr(value)) < 80 else repr(value)[:77] + "..."
            raise BadRoutesFile(f"{where}: {name} = {shown} must be {keys[name].expected}.")
    for name, key in keys.items():
        if key.required and name not in table:
            raise BadRoutesFile(f"{where}: {name} is missing; it must be {key.expected}.")


def _distinct(key: str, values: Iterable[str], where: object) -> None:
    seen: set[str] = set()
    for value in values:
        if value and value in seen:
            raise BadRoutesFile(f"{where}: {key} = {value!r} is given twice; each needs its own.")
        seen.add(value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _seconds(value: Any) -> bool:
    return _number(value) and 0 < value <= LONGEST_S


def _address(least_port: int) -> Callable[[Any], bool]:
    def good(value: Any) -> bool:
        try:
            return isinstance(value, str) and Address.parse(value).port >= least_port
        except ValueError:
            return False

    return good


def _backend(value: Any) -> bool:
    path = unix_path(value) if isinstance(value, str) else None
    return _address(1)(value) if path is None else path.is_absolute()


def _like(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _weights(value: Any) -> bool:
    return isinstance(value, dict) and all(_number(w) and w > 0 for w in value.values())


def _digests(value: Any) -> bool:
    return isinstance(value, list) and all(_like(_DIGEST)(entry) for entry in value)


_SECONDS = Key(f"a number of seconds above 0, at most {LONGEST_S}", _seconds)
_BYTES = Key(f"a whole number of bytes, 0 to {MOST_BYTES}", _whole(0, MOST_BYTES))
_PEM = Key("the path of a PEM file", lambda value: isinstance(value, str))

FILE: Mapping[str, Key] = {
    "admin": Key("an address, 'host:port'; port 0 is any free one", _address(0)),
    "deployment": Key("tables, each opened by [[deployment]]", _tables),
}
DEPLOYMENT: Mapping[str, Key] = {
    "name": Key("a name of letters, digits and . _ / -", _like(_NAME), required=True),
    "listen": Key("an address, 'host:port'", _address(1), required=True),
    "timeout_s": _SECONDS,
    "hold_limit_s": _SECONDS,
    "queue_limit": Key(
        f"a whole number of requests, 0 to {MOST_REQUESTS}", _whole(0, MOST_REQUESTS)
    ),
    "queue_limit_bytes": _BYTES,
    "body_limit_bytes": _BYTES,
    "organization_header": Key(
        "the name of a header field, or empty", lambda v: v == "" or _like(_FIELD)(v)
    ),
    "priority_header": Key("true or false", lambda value: isinstance(value, bool)),
    "weights": Key("a table of organizations, each with a number above 0", _weights),
    "may_run_twice": Key("true or false", lambda value: isinstance(value, bool)),
    "cors_in_replica": Key("true or false", lambda value: isinstance(value, bool)),
    "ready_path": Key(
        "a path that ends in /readyz",
        lambda v: isinstance(v, str) and v.startswith("/") and v.endswith("/readyz"),
    ),
    "token_digests": Key("a list of SHA-256 digests, 64 hexadecimal digits each", _digests),
    "tls_certificate": _PEM,
    "tls_key": _PEM,
    "replica": Key("tables, each opened by [[deployment.replica]]", _tables),
}
REPLICA: Mapping[str, Key] = {
    "address": Key("an address, 'host:port' or 'unix:/path'", _backend, required=True),
    "concurrency": Key("a whole number of slots, 1 to 100000", _whole(1, 100_000)),
}
