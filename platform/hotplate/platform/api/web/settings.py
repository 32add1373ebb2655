"""How the API behaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiohttp import web

from hotplate.cache.origins.hubs import Hubs
from hotplate.cache.tarballs.archive_limits import ArchiveLimits
from hotplate.machine.access.own_hosts import OwnHosts
from hotplate.machine.access.proxies import public_origin


@dataclass(frozen=True)
class ApiSettings:
    """All durations in seconds; the client gives up on a call after 60."""

    advertise_host: str = ""
    """Host in the URLs of deployments; empty = the host that the caller used to reach us."""
    deployments_url: str = ""
    """Those URLs with a star where a deployment's name stands; empty = each has a port of its own
    on that host."""
    scheme: str = "http"
    """Of those URLs: https where the gateway has a certificate."""
    own: OwnHosts = field(default_factory=OwnHosts)
    """By which names callers reach us."""
    public_url: str = ""
    """By which the world reaches the API; empty = as each caller did."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose word on callers is believed."""
    cluster_token: str = field(default="", repr=False)
    """By which control planes and gateways know each other; empty = there are no others."""
    cluster: str = "default"
    """What the client calls cluster: the name of this installation in its answers."""
    outcome_wait_s: float = 45.0
    """How long the first question after a roll-out began is held, so that nobody waits a poll."""
    held_up_s: float = 3.0
    """How long of that, while it waits for room or for its environment to be built: then the client
    is told so instead, and asks again 10 s later."""
    unpack_wait_s: float = 45.0
    """How long an upload's answer waits for its unpacking, and then again where the caller can be
    told so; else it goes on in the background."""
    body_s: float = 60.0
    """A JSON body that has not come whole after this is refused."""
    body_idle_s: float = 60.0
    """An upload that brings no byte for this long is given up."""
    downloads_at_once: int = 8
    """Sent at a time, the others wait: each holds a chunk of 8 MiB, and callers may be slow."""
    link_life_s: float = 12 * 3600.0
    """How long a signed transfer URL may be used: the client allows 10 hours for one part."""
    upload_life_s: float = 24 * 3600.0
    """Parts of an upload that nobody finished are removed so long after the last one was asked
    for; longer than a link to send one may be used."""
    upload_sweep_s: float = 3600.0
    """How often it is looked for such."""
    json_limit_bytes: int = 16 << 20
    """A JSON body at most; manifests hold schemas and readmes of up to 4 MB."""
    hubs: Hubs = field(default_factory=Hubs)
    """Where models of bentos may stay."""
    archive: ArchiveLimits = field(default_factory=ArchiveLimits)
    """What one uploaded tar may hold."""

    def origin(self, request: web.Request) -> str:
        """`scheme://host[:port]` of the API for the caller of a request."""
        return public_origin(
            request.scheme,
            request.host,
            request.remote or "",
            ", ".join(request.headers.getall("X-Forwarded-Proto", [])),
            self.trusted_proxies,
            self.public_url,
        )

    def __post_init__(self) -> None:
        for name in ("outcome_wait_s", "unpack_wait_s"):
            if not 0 <= getattr(self, name) < 60:
                raise ValueError(f"{name}: {getattr(self, name)} is not between 0 and 60")
