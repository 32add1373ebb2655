"""The hubs that a bento may name; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from hotplate.cache.errors import UnknownUrl
from hotplate.cache.origins.hub_url import HubUrl

KNOWN = "https://huggingface.co"

_PORTS = {"http": 80, "https": 443}


def own_hub(environ: Mapping[str, str]) -> str:
    """The hub of models whose URL names none."""
    return environ.get("HF_ENDPOINT") or KNOWN


@dataclass(frozen=True)
class Hubs:
    """The known hub, the hub of the platform's environment, and those that its operator lists.

    Any other URL could lead to this machine or its network, where the node's agent can reach what
    the bento's author cannot.
    """

    listed: tuple[str, ...] = ()
    own: str = KNOWN

    def check(self, model: HubUrl) -> None:
        """Raises UnknownUrl for a model of another hub."""
        if not model.endpoint:
            return
        place = endpoint_place(model.endpoint)
        if place is None or place not in map(endpoint_place, self._all()):
            raise UnknownUrl(
                f"{model.model_id} is at the hub {model.endpoint[:200]!r}, which bentos may not "
                f"name here; it must be one of {', '.join(dict.fromkeys(self._all()))}, or be "
                "listed in model_endpoints of [platform]"
            )

    def _all(self) -> Iterable[str]:
        return (KNOWN, self.own, *self.listed)


def endpoint_place(endpoint: str) -> tuple[str, str, int, str] | None:
    """Scheme, host, port and path, however the endpoint is written; None if it is none."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    if not parts.hostname or not port or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    if not endpoint.isprintable() or " " in endpoint:
        return None
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/")
