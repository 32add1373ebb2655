"""The `hotplate` command: reads flags, environment and files, and starts what they ask for."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotplate.autoscaler.errors import AutoscalerError
from hotplate.platform.commands import flags, secret_flags
from hotplate.platform.errors import BadSetting, PlatformError
from hotplate.platform.processes.data_dir import DEFAULT, DataDir
from hotplate.platform.processes.privacy import UMASK
from hotplate.platform.settings import PlatformSettings, load

if TYPE_CHECKING:
    from hotplate.deploy.local.standby.settings import StandbySettings

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status. A failure is one sentence on standard error."""
    arguments = parser().parse_args(argv)
    if argv is None:
        secret_flags.hide()
    umask = os.umask(UMASK)
    try:
        result: int | None = arguments.run(arguments)
        sys.stdout.flush()
        return result or 0
    except (PlatformError, AutoscalerError) as error:
        print(f"hotplate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read it has enough, as `head` has
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
        "hotplate", description="Serverless GPU model serving you host yourself."
    )
    top.add_argument("--version", action="version", version=f"hotplate {_version()}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands)
    _add_doctor(commands)
    _add_questions(commands)
    _add_quota(commands)
    _add_standby(commands)
    _add_cache(commands)
    _add_roles(commands)
    _add_simulate(commands)
    return top


def _version() -> str:
    try:
        return version("hotplate")
    except PackageNotFoundError:  # PYTHONPATH leads to a checkout
        return "(a checkout that is not installed)"


def _add_up(commands: Commands) -> None:
    up = commands.add_parser("up", help="the whole platform on this machine")
    up.add_argument("--host", help="address to listen on (127.0.0.1)")
    up.add_argument("--port", type=int, help="port of the API (7070)")
    up.add_argument("--data", default=DEFAULT, help=f"data directory ({DEFAULT})")
    up.add_argument(
        "--admin-token-file",
        help="file with the token to log in with (DATA/admin-token, made at first start)",
    )
    up.add_argument("--admin-token", default="", help=argparse.SUPPRESS)
    up.set_defaults(run=_up)


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser("doctor", help="which walls this machine can put up, by trying")
    doctor.add_argument("--data", default=DEFAULT, help=f"data directory of `up` ({DEFAULT})")
    doctor.add_argument("--json", action="store_true", help="one line of JSON")
    doctor.set_defaults(run=_doctor)


def _add_questions(commands: Commands) -> None:
    questions = {
        "status": "what runs, and why so much of it",
        "logs": "what the replicas of a deployment print",
        "events": "what happened to a deployment, or to all and to the platform",
        "why": "why a deployment has as many replicas as it has, or had",
    }
    for name, text in questions.items():
        command = commands.add_parser(name, help=text)
        needs_name = name in ("logs", "why")
        command.add_argument("name", metavar="NAME", nargs=None if needs_name else "?")
        _add_platform(command)
        command.set_defaults(run=_ask, question=name)
        if name == "logs":
            command.add_argument("--replica", default="", help="one replica's only")
            command.add_argument("--lines", type=int, default=100, help="last lines per replica")
        if name == "why":
            command.add_argument("--at", metavar="TIME", help="14:05 or 2026-01-31T14:05:30 (now)")
            command.add_argument(
                "--log", action="store_true", help="all that is kept, as JSON lines (to simulate)"
            )
        if name == "events":
            command.add_argument("--lines", type=int, default=100, help="last events")
        if name in ("logs", "events"):
            command.add_argument("-f", "--follow", action="store_true", help="and those that come")


def _add_standby(commands: Commands) -> None:
    standby = commands.add_parser("standby", help="warm processes that become replicas")
    standby.add_argument("action", nargs="?", choices=["set"], help="change how many there are")
    standby.add_argument(
        "how", nargs="?", help="off, automatic, a number per environment, or default: as configured"
    )
    standby.add_argument("--memory-share", type=float, metavar="X", help="of the memory, 0 to 1")
    standby.add_argument("--unused-s", type=float, metavar="S", help="kept after the last start")
    standby.add_argument("--min-starts", type=int, metavar="N", help="in 7 days, to have any")
    standby.add_argument("--calm-s", type=float, metavar="S", help="since the last start ended")
    standby.add_argument("--json", action="store_true", help="one line of JSON")
    _add_platform(standby)
    standby.set_defaults(run=_standby)


def _add_quota(commands: Commands) -> None:
    quota = commands.add_parser(
        "quota",
        help="what organizations have, and what they may have",
        usage="hotplate quota [ORGANIZATION] | hotplate quota set ORGANIZATION [--gpus N …]",
    )
    quota.add_argument("words", nargs="*", metavar="ORGANIZATION", help="its name (all)")
    for flag in ("replicas", "gpus", "cpus", "standby"):
        quota.add_argument(f"--{flag}", metavar="N", help=f"{flag} in all, or 'unlimited'")
    quota.add_argument("--memory", metavar="SIZE", help="memory in all, or 'unlimited'")
    quota.add_argument("--weight", metavar="W", help="share where there is not enough for all (1)")
    quota.add_argument(
        "--priority", metavar="P", help="most urgent that it may be beside others, 0 to 7 (3)"
    )
    _add_platform(quota)
    quota.set_defaults(run=_quota)


def _add_platform(command: argparse.ArgumentParser) -> None:
    """Where the platform is that a command asks."""
    command.add_argument("--data", default=DEFAULT, help=f"data directory of `up` ({DEFAULT})")
    command.add_argument("--endpoint", help="URL of a platform elsewhere")
    command.add_argument("--token-file", help="file with the token for --endpoint")
    command.add_argument("--token", help=argparse.SUPPRESS)


def _add_cache(commands: Commands) -> None:
    cache = commands.add_parser("cache", help="what a running agent has, and bringing it more")
    questions = cache.add_subparsers(required=True, metavar="ACTION")
    for name, named, text in (
        ("pull", "URL", "bring all files of a URL to the node"),
        ("ls", "", "what the node has"),
        ("verify", "", "read all of it again; what is damaged is dropped and named"),
        ("rm", "NAME", "drop a URL, a tree or a blob"),
        ("warm", "NAME", "bring a URL or a tree into memory"),
    ):
        question = questions.add_parser(name, help=text)
        if named:
            question.add_argument("name", metavar=named, help="URL, path or digest")
        question.add_argument("--agent", help="HOST:PORT of the agent (HOTPLATE_AGENT)")
        question.add_argument(
            "--token-file",
            help="file with its token (HOTPLATE_AGENT_TOKEN_FILE; that of your own agent is found)",
        )
        question.add_argument("--json", action="store_true", help="one line of JSON")
        question.set_defaults(run=_cache, question=name)


def _add_roles(commands: Commands) -> None:
    control = commands.add_parser("control-plane", help="the API and the controller alone")
    control.add_argument("--host", help="address to listen on (127.0.0.1)")
    control.add_argument("--port", type=int, help="port of the API (7070)")
    control.add_argument("--data", default=DEFAULT, help=f"data directory ({DEFAULT})")
    control.add_argument("--agent", required=True, help="URL of this node's agent")
    control.set_defaults(run=_control_plane)

    gateway = commands.add_parser("gateway", help="the front door alone")
    gateway.add_argument("--routes", help="file of routes to serve, without a control plane")
    gateway.add_argument("--control-plane", help="URL of the control plane to serve for")
    gateway.add_argument("--token-file", help="file with the cluster's token, and operators'")
    _add_metrics_token(gateway)
    gateway.add_argument("--state", help="folder to keep the control plane's last routes in")
    gateway.add_argument(
        "--admin", default="", help="HOST:PORT for health and metrics (the file's, or any free)"
    )
    gateway.add_argument(
        "--hosts", default="", help="NAME,… by which browsers call, beside loopback names"
    )
    gateway.add_argument("--access-log", help="file that gets a line for every answer")
    gateway.add_argument(
        "--replace", action="store_true", help="take over from the one that serves --routes now"
    )
    gateway.set_defaults(run=_gateway)

    agent = commands.add_parser("agent", help="this node's cache alone")
    agent.add_argument("--data", required=True, help="directory of its own")
    agent.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    agent.add_argument("--port", type=int, required=True, help="port to listen on; 0 = any")
    agent.add_argument("--hosts", default="", help="NAME,… by which others call it, beside --host")
    origin = agent.add_mutually_exclusive_group()
    origin.add_argument("--origin", default="", help="fsspec URL of the control plane's blobs")
    origin.add_argument("--origin-file", help="file with that URL, where it holds a password")
    peers = agent.add_mutually_exclusive_group()
    peers.add_argument("--peers", default="", help="HOST:PORT,… of other nodes' agents")
    peers.add_argument("--peers-from", default="", help="file of HOST:PORT lines, or DNS name")
    agent.add_argument("--memory", help="SIZE of arena (a quarter of the memory)")
    agent.add_argument("--spare", help="SIZE of it to make ready before it is needed (2GiB)")
    agent.add_argument("--disk", default="0", help="SIZE of disk for files (what there is)")
    agent.add_argument("--disk-reserve", default="0", help="SIZE of disk to leave free")
    _add_metrics_token(agent)
    agent.add_argument("--token-file", help="file with the cluster's token (one of its own)")
    agent.add_argument(
        "--mount",
        help="DIR to show the files in, or 'no' (in /run/hotplate; DATA/view leads there)",
    )
    agent.set_defaults(run=_agent)


def _add_metrics_token(role: argparse.ArgumentParser) -> None:
    role.add_argument(
        "--metrics-token-file",
        metavar="FILE|no",
        help="file with a token for /metrics, beside the cluster's; no: anybody may read them",
    )


def _add_simulate(commands: Commands) -> None:
    simulate = commands.add_parser("simulate", help="what a trace would cost, and who would wait")
    requests = simulate.add_mutually_exclusive_group(required=True)
    # A flag that is given twice adds to what it said before.
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    requests.add_argument("--trace", **several, metavar="FILE", help="CSV of requests")
    requests.add_argument(
        "--log", **several, metavar="FILE", help="what `why NAME --log` printed, to play it again"
    )
    simulate.add_argument("--policy", **several, metavar="NAME", help="whose rule, or all (ours)")
    simulate.add_argument("--cold-start", metavar="S", help="seconds of every start (60)")
    simulate.add_argument("--concurrency", metavar="N", help="slots of a replica (1)")
    simulate.add_argument("--instances", metavar="N", help="GPUs that there are (no limit)")
    simulate.add_argument(
        "--weight", **several, metavar="ORG=W", help="of an organization's share (1)"
    )
    simulate.add_argument("--quota", **several, metavar="ORG=N", help="GPUs it may have (no limit)")
    simulate.add_argument(
        "--standby", metavar="N|auto", help="empty instances kept ready, or as planned (0)"
    )
    simulate.add_argument(
        "--price", metavar="GPU_S", help="of ours: what one avoided cold start is worth (600)"
    )
    simulate.add_argument(
        "--seed", metavar="N", default="0", help="of what a trace leaves open (0)"
    )
    simulate.add_argument("--json", action="store_true", help="figures as JSON")
    simulate.add_argument("--decisions", metavar="FILE", help="gets a line of JSON for each")
    simulate.add_argument("--plot", metavar="FILE", help="SVG or PNG of the first policy's run")
    simulate.set_defaults(run=_simulate)


def _settings(arguments: argparse.Namespace, data: DataDir) -> PlatformSettings:
    given = {"host": arguments.host, "port": arguments.port}
    return load(
        PlatformSettings, "platform", flags=given, environ=os.environ, file=data.settings_file
    )


def _standby_settings(data: DataDir) -> StandbySettings:
    from hotplate.deploy.local.standby.settings import StandbySettings

    return load(StandbySettings, "standby", flags={}, environ=os.environ, file=data.settings_file)


def _up(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from hotplate.platform.processes.ports import reachable
    from hotplate.platform.processes.supervisor import Supervisor

    data = DataDir.at(arguments.data)
    lock = data.lock()
    try:
        data.make_private()
        settings = _settings(arguments, data)
        _standby_settings(data)  # what is wrong there is said here, and not in a role's log
        data.secret("cluster-token")
        data.secret("metrics-token")
        named = arguments.admin_token_file
        given = secret_flags.read(named, "--admin-token-file") if named else arguments.admin_token
        data.secret("admin-token", given)
        data.note("endpoint", {"url": f"http://{reachable(settings.host)}:{settings.port}"})
        supervisor = Supervisor(settings, data, Console(highlight=False))
        asyncio.run(supervisor.run())
    finally:
        os.close(lock)


def _doctor(arguments: argparse.Namespace) -> int:
    from hotplate.platform.commands.doctor import answer

    file = DataDir.named(arguments.data).settings_file
    return answer(
        arguments, load(PlatformSettings, "platform", flags={}, environ=os.environ, file=file)
    )


def _ask(arguments: argparse.Namespace) -> int:
    from hotplate.platform.commands.console import answer

    return answer(arguments)


def _quota(arguments: argparse.Namespace) -> int:
    from hotplate.platform.commands.quota import answer

    return answer(arguments)


def _control_plane(arguments: argparse.Namespace) -> None:
    from hotplate.platform.control_plane import run

    data = DataDir.at(arguments.data)
    data.make_private()
    run(_settings(arguments, data), _standby_settings(data), data, arguments.agent)


def _standby(arguments: argparse.Namespace) -> int:
    from hotplate.platform.commands.standby import answer

    return answer(arguments)


def _gateway(arguments: argparse.Namespace) -> None:
    from hotplate.serving.gateway import compiled

    compiled.use(os.environ)

    from hotplate.platform.processes.entry_points import run_gateway
    from hotplate.serving.gateway.limits import Limits
    from hotplate.serving.gateway.server import GatewaySettings, Linked

    link = {
        "--control-plane": arguments.control_plane,
        "--token-file": arguments.token_file,
        "--state": arguments.state,
    }
    given = [flag for flag, value in link.items() if value is not None]
    if arguments.routes is not None:
        token = secret_flags.read(arguments.token_file) if arguments.token_file else ""
        if given := [flag for flag in given if flag != "--token-file"]:
            raise BadSetting(f"{', '.join(given)} cannot be used with --routes: give one or other")
        source: Linked | Path = Path(arguments.routes)
    elif len(given) < len(link):
        missing = ", ".join(flag for flag in link if flag not in given)
        raise BadSetting(f"{missing} is missing: give --routes FILE, or {', '.join(link)}")
    else:
        token = secret_flags.read(arguments.token_file)
        source = Linked(arguments.control_plane, token, Path(arguments.state))
    access_log = Path(arguments.access_log) if arguments.access_log else None
    run_gateway(
        GatewaySettings(
            source,
            arguments.admin,
            arguments.replace,
            limits=Limits(hosts=flags.hosts_of(arguments.hosts)),
            metrics_token=secret_flags.metrics(arguments.metrics_token_file),
            token=token,
            access_log=access_log,
        )
    )


def _cache(arguments: argparse.Namespace) -> int:
    from hotplate.cache import own_token
    from hotplate.platform.commands.cache import answer

    agent = arguments.agent or os.environ.get("HOTPLATE_AGENT", "")
    if not agent:
        raise BadSetting("--agent HOST:PORT is missing: name the agent to ask")
    if "://" not in agent and not flags.is_address(agent):
        raise BadSetting(f"--agent {agent} is no HOST:PORT: write for instance 127.0.0.1:7070")
    token_file = arguments.token_file or os.environ.get("HOTPLATE_AGENT_TOKEN_FILE", "")
    token = (
        secret_flags.read(token_file) if token_file else own_token.find(agent.rpartition("/")[2])
    )
    return answer(arguments, agent, token)


def _agent(arguments: argparse.Namespace) -> None:
    from hotplate.cache.agent import SPARE_BYTES, AgentSettings
    from hotplate.platform.processes.entry_points import run_agent

    memory, origin = {}, arguments.origin
    if arguments.origin_file:
        origin = secret_flags.read(arguments.origin_file, "--origin-file")
    peers = flags.peers_of(arguments.peers)
    if (peers or arguments.peers_from) and not arguments.token_file:
        raise BadSetting(
            "--token-file is missing: agents know each other by the cluster's token, which is in it"
        )
    if not 0 <= arguments.port <= flags.LAST_PORT:
        raise BadSetting(
            f"--port {arguments.port} is no port: write 1 to {flags.LAST_PORT}, or 0 = any"
        )
    if arguments.memory is not None:
        memory["arena_limit_bytes"] = flags.size_of("--memory", arguments.memory)
    run_agent(
        AgentSettings(
            data_dir=DataDir.at(arguments.data).root,
            host=arguments.host,
            port=arguments.port,
            hosts=flags.hosts_of(arguments.hosts),
            origin_url=origin,
            peers=peers,
            peers_from=arguments.peers_from,
            mount=flags.mount_of(arguments),
            spare_bytes=flags.size_of("--spare", arguments.spare)
            if arguments.spare
            else SPARE_BYTES,
            disk_limit_bytes=flags.size_of("--disk", arguments.disk),
            disk_reserve_bytes=flags.size_of("--disk-reserve", arguments.disk_reserve),
            token=secret_flags.read(arguments.token_file) if arguments.token_file else "",
            metrics_token=secret_flags.metrics(arguments.metrics_token_file),
            **memory,
        )
    )


def _simulate(arguments: argparse.Namespace) -> int:
    from hotplate.platform.commands.simulate import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
