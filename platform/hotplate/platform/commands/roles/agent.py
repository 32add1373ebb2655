"""`hotplate agent`: this node's cache alone."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from pathlib import Path
from typing import Any

from hotplate.cache.agent import SPARE_BYTES, AgentSettings, serve
from hotplate.cache.errors import CacheError
from hotplate.cache.volumes.kubelet import Kubelet
from hotplate.machine.address import LAST_PORT
from hotplate.platform.commands import flags, secret_flags
from hotplate.platform.errors import BadSetting, CannotStart
from hotplate.platform.log_format import log_to_stderr
from hotplate.platform.processes.data_dir import DataDir
from hotplate.serving.replica.payload import make_payload

log = logging.getLogger("hotplate.agent")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", required=True, help="data directory that nothing else uses")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port", type=int, required=True, help="port to listen on; 0 = any free one"
    )
    parser.add_argument(
        "--hosts", default="", help="NAME,… by which others call it, besides --host"
    )
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument("--origin", default="", help="fsspec URL of the control plane's blobs")
    origin.add_argument("--origin-file", help="file with that URL, if it contains a password")
    peers = parser.add_mutually_exclusive_group()
    peers.add_argument("--peers", default="", help="HOST:PORT,… of other nodes' agents")
    peers.add_argument("--peers-from", default="", help="file of HOST:PORT lines, or DNS name")
    parser.add_argument("--memory", help="SIZE of the arena (a quarter of the memory)")
    parser.add_argument("--spare", help="SIZE of the arena that is prepared ahead of use (2GiB)")
    parser.add_argument("--disk", default="0", help="SIZE of disk space for files (the whole disk)")
    parser.add_argument("--disk-reserve", default="0", help="SIZE of disk space to keep free")
    flags.add_metrics_token(parser)
    parser.add_argument("--token-file", help="file with the cluster's token (one of its own)")
    parser.add_argument(
        "--mount",
        help="DIR to show the files in, or 'no' (in /run/hotplate; DATA/view leads there)",
    )
    parser.add_argument(
        "--kubelet", help="DIR of this node's kubelet: its pods mount volumes of this agent"
    )
    parser.add_argument("--node", help="NAME of this node in its cluster (the host's name)")


def run(arguments: argparse.Namespace) -> None:
    """Run until SIGTERM, with a token of its own if it is given none.

    Raises BadSetting, `CannotStart`.
    """
    settings = settings_of(arguments)
    log_to_stderr()
    try:
        asyncio.run(serve(settings, ready=_log_ready, guarded=True))
    except (CacheError, OSError) as error:
        raise CannotStart(f"agent on {settings.host}:{settings.port}: {error}") from error


def _log_ready(where: object) -> None:
    log.info("ready: %s", where)


def settings_of(arguments: argparse.Namespace) -> AgentSettings:
    """Raises BadSetting."""
    memory: dict[str, Any] = {}
    origin = arguments.origin
    if arguments.origin_file:
        origin = secret_flags.read(arguments.origin_file, "--origin-file")
    peers = flags.peers_of(arguments.peers)
    if (peers or arguments.peers_from) and not arguments.token_file:
        raise BadSetting(
            "--token-file is missing: agents prove themselves with the cluster's token in that file"
        )
    if not 0 <= arguments.port <= LAST_PORT:
        raise BadSetting(
            f"--port {arguments.port} is not a port: write 1 to {LAST_PORT}, or 0 = any"
        )
    if arguments.memory is not None:
        memory["arena_limit_bytes"] = flags.size_of("--memory", arguments.memory)
    return AgentSettings(
        data_dir=DataDir.at(arguments.data).root,
        host=arguments.host,
        port=arguments.port,
        hosts=flags.hosts_of(arguments.hosts),
        origin_url=origin,
        peers=peers,
        peers_from=arguments.peers_from,
        mount=None if arguments.kubelet else flags.mount_of(arguments),
        kubelet=_kubelet_of(arguments),
        spare_bytes=flags.size_of("--spare", arguments.spare) if arguments.spare else SPARE_BYTES,
        disk_limit_bytes=flags.size_of("--disk", arguments.disk),
        disk_reserve_bytes=flags.size_of("--disk-reserve", arguments.disk_reserve),
        token=secret_flags.read(arguments.token_file) if arguments.token_file else "",
        metrics_token=secret_flags.metrics(arguments.metrics_token_file),
        **memory,
    )


def _kubelet_of(arguments: argparse.Namespace) -> Kubelet | None:
    """Raises BadSetting."""
    if not arguments.kubelet:
        return None
    if not arguments.token_file:
        raise BadSetting(
            "--token-file is missing: volumes are given for tickets that the cluster's token signs"
        )
    if arguments.mount not in (None, "no"):
        raise BadSetting(
            "--mount and --kubelet exclude each other: pods see files in their volumes"
        )
    folder = Path(arguments.kubelet)
    if not (folder.is_absolute() and folder.is_dir()):
        raise BadSetting(f"--kubelet {folder} is no absolute path of a folder: write kubelet's own")
    return Kubelet(folder, arguments.node or os.uname().nodename, make_payload)
