"""The environment in which Ray Serve runs: its requirements and BentoML's exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loadtests.harness.child_process import BIN, ROOT, BenchmarkFailed, clean_environ, output_of
from loadtests.harness.network import OWN

REQUIREMENT = "ray[serve]==2.60.0"
FOLDER = BIN.parent / "peers" / "ray"
"""In our own environment's folder, so that it is removed together with that."""
PYTHON = FOLDER / "bin" / "python"
INSTALL_S = 300.0


async def install(folder: Path) -> None:
    """Makes the environment if it is missing. Raises BenchmarkFailed if it cannot be made, or if
    Ray could be reached from outside."""
    try:
        await output_of(*OWN, "true", log=folder / "unshare.log", timeout_s=10)
    except (BenchmarkFailed, FileNotFoundError) as error:
        message = f"it listens on all addresses, and cannot have a network of its own: {error}"
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


def environ(folder: Path, *, ports: tuple[int, int], haproxy: bool) -> dict[str, str]:
    """`ports` are for the metrics and the statistics of Ray's HAProxy."""
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
