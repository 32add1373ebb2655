"""`hotplate control-plane`: the API and the controller alone."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from hotplate.platform import control_plane
from hotplate.platform.cluster.settings import ClusterTable, load_cluster
from hotplate.platform.commands import flags, token_folder
from hotplate.platform.errors import BadSetting
from hotplate.platform.instance_type import load_instance_types
from hotplate.platform.processes.data_dir import DataDir

LOCAL, KUBERNETES = "local", "kubernetes"
IN_POD = "KUBERNETES_SERVICE_HOST"
"""The variable that every container of a pod has."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    flags.add_platform(parser)
    parser.add_argument(
        "--engine",
        choices=(LOCAL, KUBERNETES),
        default=LOCAL,
        help="what runs replicas: this machine, or the cluster of this pod or $KUBECONFIG (local)",
    )
    parser.add_argument("--agent", help="URL of this node's agent; with --engine local")
    flags.add_settings(parser)
    token_folder.add_tokens(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run until SIGTERM; replicas go on running. Raises BadSetting, `CannotStart`."""
    data = DataDir.at(arguments.data, alone=IN_POD in os.environ)
    data.make_private()
    file = flags.settings_file(data, arguments.settings)
    control_plane.run(
        control_plane.Equipment(
            settings=flags.platform_settings(file, arguments),
            standby=flags.standby_settings(file),
            types=load_instance_types(file),
            data=data,
            environ=os.environ,
            agent_url=_agent(arguments),
            cluster=_cluster(arguments.engine, file),
            tokens=_tokens(arguments),
        )
    )


def _agent(arguments: argparse.Namespace) -> str:
    """Raises BadSetting."""
    if arguments.engine == LOCAL and not arguments.agent:
        raise BadSetting("--agent is missing: give the URL of this node's agent")
    if arguments.engine == KUBERNETES and arguments.agent:
        raise BadSetting("--agent cannot be used with --engine kubernetes: nodes have their own")
    return arguments.agent or ""


def _cluster(engine: str, file: Path) -> ClusterTable | None:
    """Raises BadSetting."""
    return load_cluster(file, os.environ) if engine == KUBERNETES else None


def _tokens(arguments: argparse.Namespace) -> Mapping[str, str]:
    """Raises BadSetting."""
    if arguments.tokens is not None and arguments.engine == LOCAL:
        raise BadSetting("--tokens is for --engine kubernetes: this machine's agent has others")
    return token_folder.tokens_of(arguments.tokens)
