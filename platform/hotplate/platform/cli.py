"""The `hotplate` command: finds the command that is meant, and reports its failure in a sentence.

Each command is a file of `commands`, with two functions: `add_flags` and `run`.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from hotplate.autoscaler.errors import AutoscalerError
from hotplate.platform.commands import secret_flags
from hotplate.platform.errors import PlatformError
from hotplate.platform.processes.privacy import UMASK

COMMANDS = {
    "up": ("roles.up", "run the whole platform on this machine"),
    "doctor": ("doctor", "check which isolation this machine can give replicas"),
    "status": ("status", "show what runs, and why it has that many replicas"),
    "logs": ("logs", "show what the replicas of a deployment print"),
    "events": ("events", "show what happened to one or all deployments, and to the platform"),
    "why": ("why", "explain how many replicas a deployment has, or had"),
    "rollout": (
        "rollout",
        "show how a new revision takes over, or steer it; go back to an old one",
    ),
    "audit": ("audit", "show who changed what, and who was refused"),
    "org": ("org", "show, make or delete organizations"),
    "user": ("user", "show, add or change members of an organization, and operators"),
    "token": ("tokens", "show, make or revoke tokens of an organization"),
    "bento": ("artifacts", "list bentos, or delete a version of one"),
    "model": ("artifacts", "list models, or delete a version of one"),
    "quota": ("quota", "show or set the quotas of organizations"),
    "key": ("key", "show the keys that secrets are encrypted with, or make a new one"),
    "standby": ("standby", "show or set the warm processes that become replicas"),
    "environment": ("environment", "show the Python environments of bentos"),
    "gc": ("garbage", "remove what nobody wants from the blob store and this machine"),
    "cache": ("cache", "show what a running agent has cached, and fetch more"),
    "migrate": ("migrate", "show or change the database's schema"),
    "backup": ("backup", "write everything that must not be lost to a file, while it runs or not"),
    "restore": ("restore", "make an empty installation what a backup says"),
    "control-plane": ("roles.control_plane", "run only the control plane (API and controller)"),
    "gateway": ("roles.gateway", "run only the gateway"),
    "agent": ("roles.agent", "run only this node's cache agent"),
    "loadtest": ("loadtest", "put load on a deployment, and report how it did"),
    "simulate": ("simulate", "estimate what a trace would cost, and how long requests would wait"),
}
"""By name: the module below `commands`, and what the command does."""
INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


class _Command(argparse.ArgumentParser):
    """The parser of one command, which gets its flags when that command is given.

    To import all commands would take half a second, and 30 MB in each process of the platform.
    """

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        command = _imported(f"hotplate.platform.commands.{self.module}")
        command.add_flags(self)
        self.set_defaults(run=command.run)
        return super().parse_known_args(args, namespace)


class _Version(argparse.Action):
    """Finds the version when it is asked for, as that imports more than many commands do."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"hotplate {_version()}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that is named; its exit status."""
    return run(parsed(argv))


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command with its flags; those of `sys.argv` that are secret are hidden from `ps`."""
    arguments = parser().parse_args(argv)
    if argv is None:
        secret_flags.hide()
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Run one command; its exit status. A failure is one sentence on standard error."""
    umask = os.umask(UMASK)
    try:
        result: int | None = arguments.run(arguments)
        sys.stdout.flush()
        return result or 0
    except (PlatformError, AutoscalerError) as error:
        print(f"hotplate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # standard output is a full disk's file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"hotplate: {error}", file=sys.stderr)
        return 1
    finally:
        os.umask(umask)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        "hotplate", description="Self-hosted serverless GPU model serving."
    )
    top.add_argument(
        "--version", action=_Version, nargs=0, help="show program's version number and exit"
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=_Command)
    for name, (module, text) in COMMANDS.items():
        commands.add_parser(name, help=text).module = module
    return top


def _imported(name: str) -> ModuleType:
    """The module of that name. What it imports stays, so it is never searched for garbage: neither
    now, which takes a seventh of a role's start, nor while the role runs."""
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hotplate")
    except PackageNotFoundError:  # PYTHONPATH leads to a checkout
        return "(a checkout that is not installed)"


if __name__ == "__main__":
    sys.exit(main())
