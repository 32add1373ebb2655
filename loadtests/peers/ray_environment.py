"""The environment in which Ray Serve runs: its requirements and BentoML's exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loadtests.harness.child_process import BIN, ROOT, BenchmarkFailed, clean_environ, output_of

REQUIREMENT = "ray[serve]==2.60.0"
FOLDER = BIN.parent / "peers" / "ray"
"""In our own environment's folder: it goes when that goes."""
PYTHON = FOLDER / "bin" / "python"
INSTALL_S = 300.0
ALONE = ("unshare", "--map-root-user", "--net")
"""Before a command: its network has a loopback interface and nothing else."""


async def install(folder: Path) -> None:
    """Makes it if it is not there. Raises BenchmarkFailed with the reason if it cannot be made, or
    if Ray would be reached from outside."""
    try:
        await output_of(*ALONE, "true", log=folder / "unshare.log", timeout_s=10)
    except (BenchmarkFailed, FileNotFoundError) as error:
        message = f"it listens on all addresses, and there is no network for it alone: {error}"
        raise BenchmarkFailed(message) from None
    done = FOLDER / "installed"
    if done.exists() and done.read_text() == REQUIREMENT:
        return
    log, uv = folder / "ray-install.log", BIN / "uv"
    make: list[str | Path] = [uv, "venv", "-q", "--clear", "--python", BIN / "python", FOLDER]
    fill: list[str | Path] = [uv, "pip", "install", "-q", "--python", PYTHON, REQUIREMENT]
    for command in (make, fill):
        try:
            await output_of(*command, log=log, timeout_s=INSTALL_S, environ=clean_environ())
        except BenchmarkFailed as error:
            raise BenchmarkFailed(f"{REQUIREMENT} cannot be installed: {error}") from None
    done.write_text(REQUIREMENT)


def enter(pid: int) -> tuple[str, ...]:
    """Before a command: it is in the network of that process."""
    return ("nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--net")


def environ(folder: Path, *, ports: tuple[int, int], haproxy: bool) -> dict[str, str]:
    """`ports` are for what Ray's HAProxy says of itself."""
    common: Mapping[str, str] = {
        **clean_environ(),
        "PYTHONPATH": str(ROOT),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    if not haproxy:
        return dict(common)
    return {
        **common,
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports[0]),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports[1]),
    }
