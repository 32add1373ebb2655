"""`hotplate gateway`: the data plane's front door alone."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hotplate.machine.address import Address
from hotplate.platform.commands import flags, secret_flags
from hotplate.platform.errors import BadSetting, CannotStart
from hotplate.platform.log_format import log_to_stderr
from hotplate.serving.gateway import compiled

if TYPE_CHECKING:
    from hotplate.serving.gateway.protocol.api_server import ApiServer
    from hotplate.serving.gateway.protocol.routes import Route
    from hotplate.serving.gateway.server import Linked, PeerSettings

log = logging.getLogger("hotplate.gateway")

ACCOUNT = "HOTPLATE_GATEWAY__SERVICE_ACCOUNT"
USUAL_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes puts a pod's token and the API server's certificate."""
PEERS = ("--listen-peers", "--peers-from")
LISTENS = ("--listen", "--listen-tls", "--listen-internal")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--routes", help="file of routes to serve, without a control plane")
    parser.add_argument(
        "--control-plane",
        help="URL of the control plane to serve for; URL,URL of several, of which one acts",
    )
    parser.add_argument("--token-file", help="file with the cluster's and operators' tokens")
    flags.add_metrics_token(parser)
    parser.add_argument("--state", help="folder for the control plane's last routes")
    parser.add_argument(
        "--listen", help="HOST:PORT where all callers arrive; the request's Host names a deployment"
    )
    parser.add_argument("--listen-tls", help="HOST:PORT for the same over TLS")
    parser.add_argument("--tls-certificate", help="PEM file for --listen-tls")
    parser.add_argument("--tls-key", help="PEM file (by default in the certificate's)")
    parser.add_argument(
        "--listen-internal", help="HOST:PORT where services of one deployment call each other"
    )
    parser.add_argument(
        "--listen-peers", help="HOST:PORT where gateways of other machines reach this one"
    )
    parser.add_argument(
        "--peers-from", help="NAME[:PORT],… whose addresses are gateways (port: this one's)"
    )
    parser.add_argument(
        "--admin", default="", help="HOST:PORT for health and metrics (the file's, or any free)"
    )
    parser.add_argument(
        "--hosts", default="", help="NAME,… by which browsers call, besides loopback names"
    )
    parser.add_argument("--settings", help="settings file, of which [gateway] is read")
    parser.add_argument(
        "--drain-s",
        default="30",
        metavar="S",
        help="seconds that requests may take after SIGTERM (30)",
    )
    parser.add_argument("--access-log", help="file that gets a line for every response")
    parser.add_argument(
        "--replace", action="store_true", help="take over from the gateway that serves --routes now"
    )


def run(arguments: argparse.Namespace) -> None:
    """Run until SIGTERM. Raises BadSetting, `CannotStart`."""
    compiled.use(os.environ)  # before anything that is compiled is imported

    from hotplate.serving.gateway import server
    from hotplate.serving.gateway.errors import BadRoutesFile

    source, token = _source(arguments)
    settings = server.GatewaySettings(
        source,
        arguments.admin,
        arguments.replace,
        grace_s=flags.seconds_of("--drain-s", arguments.drain_s),
        limits=flags.gateway_limits(Path(arguments.settings or os.devnull), arguments.hosts),
        metrics_token=secret_flags.metrics(arguments.metrics_token_file),
        token=token,
        access_log=Path(arguments.access_log) if arguments.access_log else None,
    )
    log_to_stderr()
    if settings.admin and not flags.is_address(settings.admin, any_port=True):
        raise BadSetting(f"--admin {settings.admin} is not an address: write HOST:PORT")
    try:
        server.run(settings, ready=_log_ready)
    except BadRoutesFile as error:
        raise CannotStart(str(error)) from error
    except OSError as error:
        where = f" with --admin {settings.admin}" if settings.admin else ""
        raise CannotStart(f"the gateway{where} cannot start: {error}") from error


def _log_ready(where: object) -> None:
    log.info("ready: %s", where)


def _source(arguments: argparse.Namespace) -> tuple[Linked | Path, str]:
    """Where its routes come from, and the cluster's token. Raises BadSetting."""
    from hotplate.serving.gateway.server import Linked

    listens = _listens(arguments)
    link = {
        "--control-plane": arguments.control_plane,
        "--token-file": arguments.token_file,
        "--state": arguments.state,
    }
    given = [flag for flag, value in link.items() if value is not None]
    if arguments.routes is not None:
        token = secret_flags.read(arguments.token_file) if arguments.token_file else ""
        given += [flag for flag in (*LISTENS, *PEERS) if _value(arguments, flag) is not None]
        if given := [flag for flag in given if flag != "--token-file"]:
            raise BadSetting(
                f"{', '.join(given)} cannot be used with --routes: give one or the other"
            )
        return Path(arguments.routes), token
    if len(given) < len(link):
        missing = ", ".join(flag for flag in link if flag not in given)
        raise BadSetting(f"{missing} is missing: give --routes FILE, or {', '.join(link)}")
    token = secret_flags.read(arguments.token_file)
    peers = _peers(arguments)
    state, cluster = Path(arguments.state), _api_server(os.environ)
    return Linked(arguments.control_plane, token, state, listens, cluster, peers), token


def _value(arguments: argparse.Namespace, flag: str) -> str | None:
    value: str | None = getattr(arguments, flag.removeprefix("--").replace("-", "_"))
    return value


def _api_server(environ: Mapping[str, str]) -> ApiServer | None:
    """How the API server is reached, as Kubernetes says it to each pod; None = this is none."""
    from hotplate.serving.gateway.protocol.api_server import ApiServer

    host, port = (environ.get(f"KUBERNETES_SERVICE_{word}", "") for word in ("HOST", "PORT"))
    account = Path(environ.get(ACCOUNT, USUAL_ACCOUNT))
    known = all((account / name).is_file() for name in ("token", "ca.crt"))
    if not (host and port.isdecimal() and known):
        return None
    return ApiServer(f"https://{Address(host, int(port))}", account)


def _peers(arguments: argparse.Namespace) -> PeerSettings | None:
    """How it meets gateways of other machines. Raises BadSetting."""
    from hotplate.serving.gateway.server import PeerSettings

    listen, names = (_value(arguments, flag) for flag in PEERS)
    if listen is None and names is None:
        return None
    if listen is None or names is None or arguments.listen is None:
        needed = ("--listen", *PEERS)
        missing = ", ".join(flag for flag in needed if _value(arguments, flag) is None)
        raise BadSetting(f"{missing} is missing: {', '.join(needed)} need each other")
    if not flags.is_address(listen):
        raise BadSetting(f"--listen-peers {listen} is not an address: write HOST:PORT")
    address = Address.parse(listen)
    found = []
    for name in names.split(","):
        whole = name if ":" in name else f"{name}:{address.port}"
        if not flags.is_address(whole):
            raise BadSetting(f"--peers-from {name} is not a name: write NAME or NAME:PORT")
        found.append(Address.parse(whole))
    return PeerSettings(address, tuple(found))


def _listens(arguments: argparse.Namespace) -> tuple[Route, ...]:
    """Where all callers arrive. Raises BadSetting."""
    from hotplate.serving.gateway.protocol.routes import INTERNAL, SHARED, SHARED_TLS, Route

    certificate, key = arguments.tls_certificate or "", arguments.tls_key or ""
    if bool(certificate) != (arguments.listen_tls is not None):
        raise BadSetting("--listen-tls and --tls-certificate need each other: give both")
    if key and not certificate:
        raise BadSetting("--tls-key needs --tls-certificate beside it")
    routes = []
    for flag, name in zip(LISTENS, (SHARED, SHARED_TLS, INTERNAL), strict=True):
        text = _value(arguments, flag)
        if text is None:
            continue
        if not flags.is_address(text):
            raise BadSetting(f"{flag} {text} is not an address: write HOST:PORT")
        files = (certificate, key) if name == SHARED_TLS else ("", "")
        host, port = Address.parse(text)
        routes.append(Route(name, host, port, tls_certificate=files[0], tls_key=files[1]))
    if routes and arguments.listen is None:
        raise BadSetting("--listen is missing: it says where callers of all deployments arrive")
    return tuple(routes)
