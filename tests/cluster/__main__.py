"""A real Kubernetes on this machine, for tests.

The last line on standard output of `up` is the variable that kubectl, helm and the suite read, that
of `install` the command that logs in.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.cluster import suite
from tests.cluster.errors import TestClusterError
from tests.cluster.images import ours
from tests.cluster.installation import Installation
from tests.cluster.layout import Layout
from tests.cluster.machine import lacks
from tests.cluster.release import Release

_FAULTS = ("kill", "start", "stop", "cont", "cut", "mend")


def main() -> int:
    """The command; 1 with one sentence if it could not be done."""
    arguments = _parser().parse_args()
    cluster = Installation(Layout())
    if arguments.command == "test":
        return suite.run(cluster)
    if arguments.command != "images" and (reason := lacks()) is not None:
        print(reason)
        return 1
    try:
        if arguments.command == "images":
            for step in ours.ensure(cluster.layout):
                print(step, flush=True)
        elif arguments.command == "up":
            for step in cluster.up(arguments.nodes, arguments.fake_nodes):
                print(step, file=sys.stderr, flush=True)
            print(f"export KUBECONFIG={cluster.layout.kubeconfig}")
        elif arguments.command == "install":
            release = Release.on(cluster)
            for step in release.install(Path(arguments.values) if arguments.values else None):
                print(step, file=sys.stderr, flush=True)
            print(release.login())
        elif arguments.command == "down":
            cluster.down()
        else:
            getattr(cluster, arguments.command)(arguments.name)
    except TestClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="make the cluster, or what is missing of it")
    up.add_argument("--nodes", type=int, default=2)
    up.add_argument("--fake-nodes", type=int, default=0)
    install = commands.add_parser("install", help="install the chart, or what has changed of it")
    install.add_argument("--values", default="", help="file of values over those of the cluster")
    commands.add_parser("images", help="write the images of this tree; needs neither root nor Go")
    commands.add_parser("test", help="run the tests that need a cluster, on one made for them")
    commands.add_parser("down", help="take it down")
    for fault in _FAULTS:
        parts = "NODE, apiserver, controllers, scheduler, etcd"
        commands.add_parser(fault).add_argument("name", metavar="NAME", help=parts)
    return parser


if __name__ == "__main__":
    sys.exit(main())
