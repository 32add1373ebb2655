"""What a load test asks: a deployment's address, its method, and what the platform says of it."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from hotplate.machine.nearest import nearest
from hotplate.platform.errors import BadSetting, Conflict, NotFound, Unreachable
from hotplate.platform.schema.methods import ServiceMethod, service_methods
from hotplate.platform.spec.label_settings import LabelSettings

Ask = Callable[[str], Any]
"""Calls the platform at a path below `/api/v1/hotplate`. Raises Unreachable or NotFound."""

SCHEMA = "/schema.json"
TIMEOUT_S = 30.0
MOST_BYTES = 16 << 20
"""Of a schema."""
NAMED = 12
"""Methods, or deployments, that a sentence lists."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class LoadTarget:
    """A deployment of a platform, or a URL of which no platform is known."""

    url: str
    """Scheme, host, port and path, without a slash at the end."""
    name: str = ""
    """The deployment's; empty = no platform is asked about it."""
    organization_header: str = ""
    protected: bool = False
    """Whether its callers need a token, as far as is known."""

    @property
    def prefix(self) -> str:
        return urlsplit(self.url).path

    def base(self, route: str) -> str:
        """What a route is appended to: a schema's routes begin with the prefix of the service,
        which may be the URL's path."""
        below = self.prefix and route.startswith(self.prefix + "/")
        return self.url.removesuffix(self.prefix) if below else self.url


def is_url(text: str) -> bool:
    return "://" in text


def of_url(text: str) -> LoadTarget:
    """Raises BadSetting where it is no address that can be asked."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadSetting(f"TARGET {text} is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise BadSetting(f"TARGET {text} is not a URL of a deployment: write http://HOST:PORT")
    if parts.username is not None or parts.query or parts.fragment or not _is_plain(text):
        raise BadSetting(
            f"TARGET {text} has more than a scheme, a host, a port and a path: put the method into "
            "--route, and a token into a file for --endpoint-token-file"
        )
    return LoadTarget(f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"))


def page_of(name: str) -> str:
    """The path of the platform's page on a deployment."""
    return f"/deployments/{quote(name)}"


def of_name(name: str, ask: Ask) -> LoadTarget:
    """The deployment of that name. Raises BadSetting, Conflict, NotFound or Unreachable."""
    if not _NAME.fullmatch(name):
        raise BadSetting(
            f"TARGET {name} is neither a deployment's name nor a URL: a URL begins with http://"
        )
    try:
        return _of(ask(page_of(name)))
    except NotFound:
        names = [str(item["name"]) for item in ask("/deployments")]
    near = nearest(name, names)
    hint = f"did you mean {near}?" if near else f"there are {_listed(names)}"
    raise NotFound(f"there is no deployment {name}; {hint if names else 'there is none at all'}")


def watched(target: LoadTarget, ask: Ask) -> LoadTarget:
    """The same with the deployment whose URL it is, if the platform has one.

    Raises Conflict or Unreachable.
    """
    parts = urlsplit(target.url)
    for item in ask("/deployments"):
        if _is_same_place(parts, urlsplit(str(item["url"]))):
            found = _of(ask(page_of(str(item["name"]))))
            return LoadTarget(target.url, found.name, found.organization_header, found.protected)
    return target


def _of(item: Mapping[str, Any]) -> LoadTarget:
    """By its page of the platform's API. Raises Conflict where it does not serve."""
    name, status = item["name"], item["status"]
    reason = f" ({item['reason']})" if item["reason"] else ""
    if item["wanted"] != "running":
        raise Conflict(
            f"{name} is {item['wanted']} and answers nobody: start it with "
            f"'bentoml deployment start {name}'"
        )
    if status in ("failed", "image-build-failed"):
        raise Conflict(f"{name} has failed{reason}: 'hotplate status {name}' shows why")
    if item["serving"] is None:
        raise Conflict(f"{name} does not serve yet, it is {status}{reason}: wait until it does")
    if all(service["max_replicas"] == 0 for service in item["live"]["services"]):
        raise Conflict(f"{name} may have no replica (max_replicas is 0), so it never answers")
    labels = LabelSettings.of(item["labels"])
    return LoadTarget(
        url=str(item["url"]).rstrip("/"),
        name=name,
        organization_header=labels.organization_header,
        protected=bool(item["config"].get("access_authorization")),
    )


def _is_same_place(one: SplitResult, other: SplitResult) -> bool:
    try:
        if one.port != other.port or one.port is None:
            return False
    except ValueError:
        return False
    hosts = {one.hostname or "", other.hostname or ""}
    return len(hosts) == 1 or all(map(_is_this_machine, hosts))


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def schema_of(target: LoadTarget, token: str) -> object | None:
    """What the service says of its methods; None where it answers but has no schema.

    BentoML has the schema of a service with a path prefix above that prefix, so where there is none
    below the target's path, its host is asked. A deployment that sleeps is not woken by it. No
    redirect is followed. Raises Unreachable where nobody answers, and BadSetting where the token is
    missing or wrong.
    """
    found = _schema_at(target, target.url, token)
    if found is not None or not target.prefix:
        return found
    found = _schema_at(target, target.url.removesuffix(target.prefix), token)
    below = f"{target.prefix}/"
    # Another service may be there.
    return found if any(each.route.startswith(below) for each in service_methods(found)) else None


def _schema_at(target: LoadTarget, url: str, token: str) -> object | None:
    status, headers, body = _get(target, url + SCHEMA, token)
    if status in (401, 403):
        raise BadSetting(
            f"{target.url} wants a token ({status}): name a file with one of the scope endpoint by "
            "--endpoint-token-file"
        )
    if 300 <= status < 400:
        where = headers.get("Location") or "nowhere"
        raise BadSetting(
            f"{target.url} redirects to {where} ({status}), and a load test follows no redirect: "
            "give the address that is meant as TARGET"
        )
    if status != 200:
        return None
    try:
        schema: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return schema


def _get(target: LoadTarget, url: str, token: str) -> tuple[int, Mapping[str, str], bytes]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            host, parts.port, timeout=TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request("GET", parts.path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers.items()), answer.read(MOST_BYTES)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unreachable(f"{target.url} does not answer ({reason}): does it run?") from error
    finally:
        connection.close()


def checked_route(text: str) -> str:
    """`--route`, which stays at the deployment. Raises BadSetting."""
    path = text.partition("?")[0]
    if not text.startswith("/") or text.startswith("//") or not _is_plain(text) or "#" in text:
        raise BadSetting(
            f"--route {text} is not a path of the deployment: write /PATH, without scheme and host"
        )
    if any(part in (".", "..") for part in re.sub(r"(?i)%2e", ".", path).split("/")):
        raise BadSetting(f"--route {text} leads elsewhere by '..': write the path that is meant")
    return text


def _is_plain(text: str) -> bool:
    """Without spaces, control characters, backslashes and what is not ASCII."""
    return re.fullmatch(r"[!-\[\]-~]+", text) is not None


def method_of(
    methods: Sequence[ServiceMethod], route: str | None, mounted: Sequence[str] = ()
) -> ServiceMethod | None:
    """The method that is meant: the one of that route, or the only one.

    The route may leave out the service's path prefix: where no method and none of the `mounted`
    applications has it, the only method whose route ends with it is meant. None = the service lists
    none of that route. Raises BadSetting where it is not clear which.
    """
    if route is not None:
        path = route.partition("?")[0]
        found = [each for each in methods if each.route == path]
        if not found and not any(_is_below(path, each) for each in mounted):
            found = [each for each in methods if each.route.endswith(path)]
        return found[0] if len(found) == 1 else None
    if not methods:
        raise BadSetting(
            "the service lists no method at /schema.json: say with --route and --payload what to "
            "send where"
        )
    if len(methods) > 1:
        routes = _listed([method.route for method in methods])
        raise BadSetting(
            f"the service has {len(methods)} methods: choose one by --route ({routes})"
        )
    return methods[0]


def route_of(method: ServiceMethod | None, route: str | None) -> str:
    """What is asked: the method's own route, with the query of the one that was given."""
    if method is None:
        return route or ""
    query = (route or "").partition("?")
    return method.route + "".join(query[1:])


def _is_below(path: str, mounted: str) -> bool:
    """Whether a mounted application answers it; its paths may have parameters: `/items/{id}`."""
    return f"{path}/".startswith(mounted.partition("{")[0].rstrip("/") + "/")


def unknown_route(methods: Sequence[ServiceMethod], route: str) -> BadSetting:
    """For a route that has no schema to make a payload from."""
    routes = [method.route for method in methods]
    near = nearest(route, routes)
    hint = f"; did you mean {near}?" if near else f" ({_listed(routes)})" if routes else ""
    return BadSetting(
        f"the service lists no method {route}{hint}; for what it does not list, such as a mounted "
        "application, give a --payload"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
