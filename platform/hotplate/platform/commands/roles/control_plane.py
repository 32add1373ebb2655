"""`hotplate control-plane`: the API and the controller alone."""

from __future__ import annotations

import argparse
import os

from hotplate.platform import control_plane
from hotplate.platform.commands import flags
from hotplate.platform.instance_type import load_instance_types
from hotplate.platform.processes.data_dir import DataDir


def add_flags(parser: argparse.ArgumentParser) -> None:
    flags.add_platform(parser)
    parser.add_argument("--agent", required=True, help="URL of this node's agent")


def run(arguments: argparse.Namespace) -> None:
    """Run until SIGTERM; replicas go on running. Raises BadSetting, `CannotStart`."""
    data = DataDir.at(arguments.data)
    data.make_private()
    settings = flags.platform_settings(data, arguments)
    standby = flags.standby_settings(data)
    types = load_instance_types(data.settings_file)
    control_plane.run(settings, standby, types, data, arguments.agent, os.environ)
