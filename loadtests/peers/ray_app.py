"""Ray Serve: a deployment whose asynchronous handler does what `loadtests.programs.backend` does.

Run by the Python of an environment that has Ray, which cannot be BentoML's.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import signal
import socket
import struct
import sys

import ray  # type: ignore[import-not-found]  # it is in an environment of its own
from ray import serve
from starlette.requests import Request

from loadtests.harness.accelerator import Accelerator
from loadtests.peers.stats_server import serve_stats

HOST = "127.0.0.1"
SIOCSIFFLAGS = 0x8914


class Bench:
    def __init__(self, slots: int, stats_port: int) -> None:
        self._slots = slots
        self._stats_port = stats_port
        self._accelerator: Accelerator | None = None

    async def __call__(self, request: Request) -> dict[str, str]:
        if self._accelerator is None:  # made here, because it needs the loop of the handlers
            self._accelerator = Accelerator(self._slots)
            serve_stats(self._accelerator, self._stats_port)
        await request.body()
        done = asyncio.Event()
        self._accelerator.begin(float(request.url.path.rpartition("/")[2]), done.set)
        await done.wait()
        return {"answer": "x" * 1000}


def loopback_up() -> None:
    """Our network is new, and its loopback interface is down at first."""
    up = struct.pack("16sh", b"lo", 1)  # struct ifreq, with IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, up)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--stats-port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--folder", required=True)
    flags = parser.parse_args()
    loopback_up()
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=flags.folder,
        _node_ip_address=HOST,
    )
    serve.start(
        http_options={
            "host": HOST,
            "port": flags.port,
            "request_timeout_s": flags.timeout,
        }
    )
    options = {"max_ongoing_requests": flags.slots, "ray_actor_options": {"num_cpus": 0}}
    serve.run(serve.deployment(Bench, **options).bind(flags.slots, flags.stats_port))
    print(json.dumps({"port": flags.port}), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.pause()


if __name__ == "__main__":
    main()
