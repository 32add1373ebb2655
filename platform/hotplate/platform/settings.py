"""Settings of the platform: flag > environment > file > default.

The file is `hotplate.toml` in the data directory, with one table per component:

    [platform]
    port = 8080

    [standby]
    mode = "off"

    [gateway]
    idle_s = 120.0

In the environment the same is `HOTPLATE_PLATFORM__PORT=8080`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints
from urllib.parse import urlsplit

from hotplate.cache.origins.hubs import endpoint_place
from hotplate.machine.access.own_hosts import is_host
from hotplate.machine.access.proxies import is_network
from hotplate.machine.nearest import nearest
from hotplate.platform.errors import BadSetting

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LONGEST_S = 3_000_000_000
"""95 years; so long ago is still a date, which infinity is not."""
TABLES = ("platform", "standby", "gateway", "instance_types", "cluster")
READ_ELSEWHERE = frozenset(
    f"HOTPLATE_GATEWAY__{name}" for name in ("COMPILED", "MEETING", "SERVICE_ACCOUNT")
)
"""Variables that a gateway reads before it has settings; no file has them."""
_KINDS = {int: "a whole number", float: "a number", str: "a text"}
S = TypeVar("S", bound="DataclassInstance")


class Cpus(StrEnum):
    """How a request for CPUs is met."""

    SHARE = "share"
    """A weight, capped at the machine's; promised `cpu_overcommit` times."""
    RESERVE = "reserve"
    """Promised once; a replica that asks for more than there are never starts."""


class ImageCommands(StrEnum):
    """What becomes of the commands of a bento's image, which nobody runs on a machine."""

    SKIP = "skip"
    """An event of the deployment names them."""
    REFUSE = "refuse"
    """The bento is not deployed."""


@dataclass(frozen=True)
class PlatformSettings:
    host: str = "127.0.0.1"
    """Address on which the API and the deployments listen; 0.0.0.0 for all."""
    port: int = 7070
    """Port of the API and the dashboard."""
    advertise_host: str = ""
    """Host name that deployments' URLs carry; empty = `host`, or what the client called."""
    control_planes: int = 1
    """How many control planes `hotplate up` starts, 1 or 2: one acts, and another one takes over
    from it within seconds. Together they are best on PostgreSQL (`database_url`)."""
    hosts: tuple[str, ...] = ()
    """Further names by which browsers and clients call this platform, such as a proxy's; what asks
    for another one is answered 421."""
    public_url: str = ""
    """URL by which the world reaches the API, such as https://models.example.com behind a proxy;
    empty = as each caller did."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies that say truly from whom, and by which scheme, they were
    called (`X-Forwarded-For`, `X-Forwarded-Proto`)."""
    metrics_need_token: bool = True
    """Whether `/metrics` of control plane, gateway and agent want `Authorization: Bearer` with the
    token in `metrics-token` of the data directory, or the cluster's; they name all deployments."""
    database_url: str = ""
    """SQLAlchemy URL; empty = SQLite in the data directory."""
    blobs_url: str = ""
    """fsspec URL of bentos and models; empty = a folder of the data directory."""
    secret_keys_file: str = ""
    """File with the keys that secrets are encrypted with, made at the first start and readable for
    the platform's user alone; empty = `secret-keys` in the data directory. Whoever loses it loses
    the secrets."""
    model_endpoints: tuple[str, ...] = ()
    """Hubs that a bento's models may stay at, beside huggingface.co and `HF_ENDPOINT`."""
    replica_reads: tuple[str, ...] = ()
    """Files and folders of this machine that replicas read, of those hidden from them: data sets, a
    cache in somebody's home. They need to be readable for everybody where the platform is root."""
    replica_writes: tuple[str, ...] = ()
    """The same that replicas write too: all of them, of whatever organization."""
    deployment_ports: str = "7100-7999"
    """Ports that deployments get, first to last; each keeps its own."""
    arena_bytes: int = 0
    """Memory for model files, shared by replicas; 0 = a quarter of the machine's."""
    cpus: Cpus = Cpus.SHARE
    """Whether replicas share the machine's CPUs or each has its own."""
    cpu_overcommit: float = 4.0
    """How many times the CPUs are promised where they are shared."""
    disk_reserve_bytes: int = 0
    """Bytes that uploads, models and environments leave free; 0 = 5 % of a disk, at most 1 GiB."""
    image_commands: ImageCommands = ImageCommands.SKIP
    """What becomes of a bento whose image asks for commands or system packages."""
    prometheus_url: str = ""
    """Prometheus that is asked for deployments with `autoscaling/` annotations; empty = none."""
    tls_certificate: str = ""
    """PEM file with the certificate, and its chain, that deployments are served with; empty = plain
    HTTP. The files are followed while they change."""
    tls_key: str = ""
    """PEM file with its key; empty = it is in the certificate's file."""
    access_log: str = ""
    """File in which the gateway writes a line for every answer; empty = none."""
    trust_organizations: bool = False
    """Whether organizations trust each other: then they are served beside each other even where
    nothing keeps their replicas apart, and share environments, packages and standbys."""
    drain_s: float = 30.0
    """How long running requests may take to end when the platform stops."""

    revisions_kept: int = 10
    """How many of a deployment's last revisions can be returned to."""
    dev_idle_s: float = 3600.0
    """A code space sleeps after so long without a request, a saved file, or 'bentoml code' that
    watches."""
    unused_files_s: float = 600.0
    """Files that no deployment uses stay unpacked on a node this long after they were used."""
    spare_environments: int = 5
    """Python environments that are kept though no deployment uses them: those used last."""

    gc_grace_s: float = 86_400.0
    """Nothing that nobody wants is removed that was written, or an environment that was used, so
    short a time ago."""
    gc_period_s: float = 600.0
    """How often it is looked for what nobody wants."""

    package_cache: str = ""
    """Folder for what builds of environments download; empty = in the data directory. Several
    platforms may share one."""
    build_memory_bytes: int = 0
    """Memory that all builds of environments may use together; 0 = half of the machine's."""
    build_timeout_s: float = 1800.0
    """How long building an environment may take."""

    audit_days: float = 400.0
    """How long it is kept who changed what."""

    task_results_s: float = 604_800.0
    """How long the result of a task is kept after its end; a week, as people come back to them."""

    def __post_init__(self) -> None:
        _check("port", self.port, 0 < self.port <= 65535, "1 to 65535")
        _check("control_planes", self.control_planes, 1 <= self.control_planes <= 2, "1 or 2")
        _check("arena_bytes", self.arena_bytes, self.arena_bytes >= 0, "0 or more")
        overcommit = self.cpu_overcommit
        _check("cpu_overcommit", overcommit, 1 <= overcommit <= 1000, "1 to 1000")
        reserve_bytes = self.disk_reserve_bytes
        _check("disk_reserve_bytes", reserve_bytes, reserve_bytes >= 0, "0 or more")
        for name in ("drain_s", "unused_files_s", "gc_grace_s"):
            value_s = getattr(self, name)
            _check(name, value_s, 0 <= value_s <= LONGEST_S, f"0 to {LONGEST_S}")
        days = self.audit_days
        _check("audit_days", days, 0 < days <= 36_500, "more than 0, at most 36500")
        for name in ("task_results_s", "build_timeout_s", "dev_idle_s", "gc_period_s"):
            value_s = getattr(self, name)
            _check(name, value_s, 0 < value_s <= LONGEST_S, f"more than 0, at most {LONGEST_S}")
        spare = self.spare_environments
        _check("spare_environments", spare, spare >= 0, "0 or more")
        kept = self.revisions_kept
        _check("revisions_kept", kept, 1 <= kept <= 1000, "1 to 1000")
        build_bytes = self.build_memory_bytes
        _check("build_memory_bytes", build_bytes, build_bytes >= 0, "0 or more")
        url = self.prometheus_url
        good = not url or re.match("https?://[^/]", url) is not None
        _check("prometheus_url", url, good, "a URL, e.g. http://127.0.0.1:9090")
        _check("tls_key", self.tls_key, not self.tls_key or bool(self.tls_certificate), "empty")
        for name in self.hosts:
            _check("hosts", name, is_host(name), "a name or an address, e.g. models.example.com")
        url = self.public_url
        good = not url or re.fullmatch("https?://[^/?#\\s]+/?", url) is not None
        _check("public_url", url, good, "a URL without a path, e.g. https://models.example.com")
        for network in self.trusted_proxies:
            _check("trusted_proxies", network, is_network(network), "addresses, e.g. 10.0.0.0/8")
        for endpoint in self.model_endpoints:
            good = endpoint_place(endpoint) is not None
            _check("model_endpoints", endpoint, good, "URLs, e.g. https://hub.example.com")
        for name in ("replica_reads", "replica_writes"):
            for path in getattr(self, name):
                good = path.startswith("/") and path == os.path.normpath(path) != "/"
                _check(name, path, good, "absolute paths below /, without '..'")
        first, last = self.port_range()
        _check(
            "deployment_ports", self.deployment_ports, 0 < first <= last <= 65535, "e.g. 7100-7999"
        )

    @property
    def secret_keys_at(self) -> Path | None:
        """The file `secret_keys_file`; None = that of the data directory."""
        given = self.secret_keys_file
        return Path(given).expanduser().absolute() if given else None

    @property
    def own_hosts(self) -> tuple[str, ...]:
        """Every name by which this platform is called, beside `host` and loopback names."""
        public = urlsplit(self.public_url).netloc.rpartition("@")[2]  # browsers tell its port
        return tuple(filter(None, (self.advertise_host, public, *self.hosts)))

    def port_range(self) -> tuple[int, int]:
        """First and last port for deployments."""
        first, _, last = self.deployment_ports.partition("-")
        try:
            return int(first), int(last or first)
        except ValueError:
            return 0, 0


def load(
    cls: type[S],
    table: str,
    *,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    file: Path,
) -> S:
    """The settings `cls`, from flags (None = not given), environment and file.

    Raises `BadSetting` for an unknown key (with the nearest one that exists) or a bad value.
    """
    names = [field.name for field in fields(cls)]
    values: dict[str, Any] = {}
    for key, value in file_table(file, table).items():
        values[known(key, names, f"{file}: [{table}] {key}")] = value
    prefix = f"HOTPLATE_{table.upper()}__"
    for key, value in environ.items():
        if key.startswith(prefix) and key not in READ_ELSEWHERE:
            values[known(key.removeprefix(prefix).lower(), names, key)] = value
    values |= {key: value for key, value in flags.items() if value is not None}
    return overlaid(cls(), values, table)


def overlaid(settings: S, values: Mapping[str, Any], where: str) -> S:
    """`settings` with some values replaced, each of its setting's type or a text that says one.

    Raises `BadSetting`, which begins with `where`.
    """
    kinds = get_type_hints(type(settings))
    names = [field.name for field in fields(settings)]
    converted = {
        known(key, names, f"{where}.{key}"): _converted(f"{where}.{key}", value, kinds[key])
        for key, value in values.items()
    }
    try:
        return replace(settings, **converted)
    except ValueError as error:
        raise BadSetting(f"{where}: {error}") from error


def file_table(file: Path, table: str) -> Mapping[str, Any]:
    """A table of the settings file, empty where there is none. Raises BadSetting."""
    if not file.is_file():
        return {}
    try:
        content = tomllib.loads(file.read_text())
    except ValueError as error:  # what is no TOML, no UTF-8, or a number of thousands of digits
        raise BadSetting(f"{file} cannot be read: {error}") from error
    for key in content:
        known(key, list(TABLES), f"{file}: [{key}]")
    found = content.get(table, {})
    if not isinstance(found, dict):
        raise BadSetting(f"{file}: '{table}' must be a table: [{table}]")
    return found


def known(key: str, names: list[str], where: str) -> str:
    """`key`, if it is one of `names`. Raises BadSetting with the nearest one."""
    if key in names:
        return key
    near = nearest(key, names)
    hint = f"did you mean '{near}'?" if near else f"known: {', '.join(names)}"
    raise BadSetting(f"{where}: no such setting; {hint}")


def _converted(where: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:  # of texts: a list in the file, joined by commas elsewhere
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(one, str) for one in parts):
            raise BadSetting(f'{where}: {value!r} is not a list of texts; write ["one", "two"]')
        return tuple(filter(None, (one.strip() for one in parts)))
    if kind is bool:  # of a text, which would be true whatever it says
        return value if isinstance(value, bool) else _truth(where, value)
    if issubclass(kind, StrEnum):
        if value not in list(kind):
            raise BadSetting(f"{where}: {value!r} is none of {', '.join(kind)}")
        return kind(value)
    # True is an int to Python, and int(1.5) is 1.
    fits = isinstance(value, str | kind | (int if kind is float else kind))
    with suppress(ValueError):
        if fits and not isinstance(value, bool):
            return kind(value)
    raise BadSetting(f"{where}: {value!r} is not {_KINDS[kind]}")


def _truth(where: str, value: Any) -> bool:
    truths = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, str) and value.lower() in truths:
        return truths[value.lower()]
    raise BadSetting(f"{where}: {value!r} is not true or false")


def _check(name: str, value: object, good: bool, allowed: str) -> None:
    if not good:
        raise BadSetting(f"platform.{name}: {value!r} is not allowed; it must be {allowed}")
