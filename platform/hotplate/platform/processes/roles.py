"""The roles that `hotplate up` starts on this machine, each with its command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from blake3 import blake3

from hotplate.deploy.local.machine import arena_bytes
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.ports import reachable
from hotplate.platform.settings import PlatformSettings

CONTROL_PLANE = "control-plane"
SECOND_CONTROL_PLANE = "control-plane-2"
CONTROL_PLANES = (CONTROL_PLANE, SECOND_CONTROL_PLANE)


@dataclass(frozen=True)
class Role:
    """A process of the platform, and how it is started."""

    name: str
    argv: tuple[str, ...]
    url: str
    address: tuple[str, int] | None = None
    """Host and port that must be free for it; None where those were chosen among free ones."""

    @property
    def health_url(self) -> str:
        return f"{self.url}/healthz"


def roles_of(settings: PlatformSettings, data: DataDir, ports: Mapping[str, int]) -> list[Role]:
    """In the order in which they are started; `ports` are those of the agent, the gateway and the
    second control plane."""
    planes = {CONTROL_PLANE: settings.port}
    if settings.control_planes > 1:
        planes[SECOND_CONTROL_PLANE] = ports[SECOND_CONTROL_PLANE]
    urls = {name: api_url(settings, port) for name, port in planes.items()}
    agent = f"http://127.0.0.1:{ports['agent']}"
    token = str(data.root / "cluster-token")
    metrics = str(data.root / "metrics-token") if settings.metrics_need_token else "no"
    return [
        _role(
            "agent",
            agent,
            data=data.folder("agent"),
            port=ports["agent"],
            **_origin(settings.blobs_url or data.blobs_url, data),
            memory=arena_bytes(settings.arena_bytes),
            spare="0B",  # the machine is not the agent's alone: it sleeps small
            disk_reserve=settings.disk_reserve_bytes,
            token_file=token,
            metrics_token_file=metrics,
        ),
        _role(
            "gateway",
            f"http://127.0.0.1:{ports['gateway']}",
            control_plane=",".join(urls.values()),
            admin=f"127.0.0.1:{ports['gateway']}",
            state=data.folder("gateway"),
            token_file=token,
            metrics_token_file=metrics,
            hosts=",".join(settings.own_hosts),
            settings=data.settings_file,
            drain_s=settings.drain_s,
            access_log=settings.access_log,
        ),
        *(
            replace(
                _role(
                    CONTROL_PLANE,
                    urls[name],
                    data=data.root,
                    host=settings.host,
                    port=port,
                    agent=agent,
                ),
                name=name,
                address=(settings.host, port),
            )
            for name, port in planes.items()
        ),
    ]


def api_url(settings: PlatformSettings, port: int) -> str:
    """Where this machine reaches the control plane on that port."""
    return f"http://{reachable(settings.host)}:{port}"


def _origin(url: str, data: DataDir) -> dict[str, object]:
    """The flag that says where blobs are: a password in it is nobody's who lists processes."""
    named = urlsplit(url)
    if "@" not in named.netloc and not named.query:
        return {"origin": url}
    # Another URL is another file, so that the agent of another URL is not taken over.
    name = f"origin-{blake3(url.encode()).hexdigest(length=8)}"
    data.secret(name, url)
    return {"origin_file": data.root / name}


def _role(name: str, url: str, **flags: object) -> Role:
    argv = [sys.executable, "-m", "hotplate.platform.cli", name]
    for flag, value in flags.items():
        argv += [f"--{flag.replace('_', '-')}", str(value)]
    return Role(name, tuple(argv), url)
