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

A deployment has an address of its own (`listen`), or `hosts` by which callers choose it at the
file's own `listen`.

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

from hotplate.machine.access.own_hosts import host_of
from hotplate.machine.address import Address
from hotplate.machine.unix_address import unix_path
from hotplate.serving.gateway.errors import BadRoutesFile
from hotplate.serving.gateway.protocol.routes import SHARED, ReplicaRoute, Route

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
    shared: tuple[Route, ...] = ()
    """Where the routes with hosts are reached; empty = the file does not say."""


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
    _distinct("hosts", (host for route in routes for host in route.hosts), path)
    shared = _shared(data, path)
    if not shared and (hosted := [route.name for route in routes if route.hosts]):
        raise BadRoutesFile(
            f"{path}: deployment {hosted[0]!r} has hosts, and the file has no listen; say at its "
            'top where callers come, as in listen = "0.0.0.0:80".'
        )
    own = [route for route in (*shared, *routes) if route.port]
    listens = [str(Address(route.host, route.port)) for route in own]
    _distinct("listen", [*listens, data.get("admin", "")], path)
    return RoutesFile(tuple(routes), data.get("admin", ""), shared)


def _shared(data: Mapping[str, Any], path: Path) -> tuple[Route, ...]:
    listen, files = data.get("listen"), _tls_files(data, path, str(path))
    if listen is None:
        if files:
            raise BadRoutesFile(f"{path}: tls_certificate needs the file's listen beside it.")
        return ()
    host, port = Address.parse(listen)
    return (Route(SHARED, host, port, **files),)


def _tls_files(table: Mapping[str, Any], path: Path, where: str) -> dict[str, Any]:
    """The certificate's files, relative to the file's folder."""
    given = {key: table[key] for key in ("tls_certificate", "tls_key") if table.get(key)}
    if "tls_key" in given and "tls_certificate" not in given:
        raise BadRoutesFile(f"{where}: tls_key = {given['tls_key']!r} needs a tls_certificate.")
    return {key: str(path.parent / name) for key, name in given.items()}


def _place(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Where callers reach the deployment, taken out of its values."""
    listen, hosts = values.pop("listen", None), values.pop("hosts", None)
    if (listen is None) == (hosts is None):
        both = "has both, and needs one" if hosts else "has neither, and needs one"
        raise BadRoutesFile(
            f"{where}: it {both}: listen, {DEPLOYMENT['listen'].expected}, or hosts, "
            f"{DEPLOYMENT['hosts'].expected}."
        )
    if listen is not None:
        host, port = Address.parse(listen)
        return {"host": host, "port": port}
    if values.get("tls_certificate"):
        raise BadRoutesFile(
            f"{where}: tls_certificate belongs to the file's listen, as the deployment has hosts."
        )
    return {"host": "", "port": 0, "hosts": tuple(host_of(host) for host in hosts)}


def _route(entry: Mapping[str, Any], path: Path, number: int) -> Route:
    name = entry.get("name")
    where = f"{path}: deployment {name!r}" if name else f"{path}: [[deployment]] number {number}"
    _check(entry, DEPLOYMENT, where)
    values = dict(entry)
    values |= _tls_files(values, path, where)
    place = _place(values, where)
    replicas = values.pop("replica", ())
    for at, replica in enumerate(replicas, 1):
        _check(replica, REPLICA, f"{where}: [[deployment.replica]] number {at}")
    _distinct("address", (replica["address"] for replica in replicas), where)
    digests = values.pop("token_digests", None)
    return Route(
        **place,
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


def _hosts(value: Any) -> bool:
    return isinstance(value, list) and value != [] and all(map(_is_host, value))


def _is_host(value: Any) -> bool:
    return isinstance(value, str) and host_of(value) == value.lower().removesuffix(".").strip("[]")


def _digests(value: Any) -> bool:
    return isinstance(value, list) and all(_like(_DIGEST)(entry) for entry in value)


_SECONDS = Key(f"a number of seconds above 0, at most {LONGEST_S}", _seconds)
_BYTES = Key(f"a whole number of bytes, 0 to {MOST_BYTES}", _whole(0, MOST_BYTES))
_PEM = Key("the path of a PEM file", lambda value: isinstance(value, str))

FILE: Mapping[str, Key] = {
    "admin": Key("an address, 'host:port'; port 0 is any free one", _address(0)),
    "listen": Key("an address, 'host:port'", _address(1)),
    "tls_certificate": _PEM,
    "tls_key": _PEM,
    "deployment": Key("tables, each opened by [[deployment]]", _tables),
}
DEPLOYMENT: Mapping[str, Key] = {
    "name": Key("a name of letters, digits and . _ / -", _like(_NAME), required=True),
    "listen": Key("an address, 'host:port'", _address(1)),
    "hosts": Key("a list of host names, without ports, at least one", _hosts),
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
