"""What a replica's making needs of others: of a workload, of the node's agent, of a recorder, of
whatever shuts in the building of an environment.

The engine's `Workload`, `Recorder` and `Builds` and the cache's `AgentClient` fit; nothing of them
is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol


class ServiceKey(Protocol):
    @property
    def organization(self) -> str: ...
    @property
    def service(self) -> str: ...


class Amounts(Protocol):
    @property
    def cpus(self) -> float:
        """CPU cores; 0 = not limited."""


class BentoModel(Protocol):
    """A model of the BentoML store that the bento names."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def manifest(self) -> str:
        """Digest of the manifest of its files."""


class ServedBento(Protocol):
    """One service of a bento with all that was configured for it (the engine's `Workload`)."""

    @property
    def key(self) -> ServiceKey: ...
    @property
    def bento_manifest(self) -> str: ...
    @property
    def models(self) -> Sequence[BentoModel]: ...
    @property
    def entry(self) -> bool: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def cloud(self) -> Mapping[str, str]:
        """Variables that tell the replica of its deployment; they go over `env`."""

    @property
    def config_overrides(self) -> Mapping[str, Any]: ...
    @property
    def config(self) -> Mapping[str, Any]:
        """The service's configuration with `config_overrides` applied."""

    @property
    def depends(self) -> Mapping[str, str]:
        """URL per service that this one calls."""

    @property
    def resources(self) -> Amounts: ...
    @property
    def stop_grace_s(self) -> float: ...


class Recorder(Protocol):
    """Notes the phases of one cold start."""

    def begin(self, phase: str) -> None: ...
    def end(self, phase: str) -> None: ...
    def building(self, log: str) -> None:
        """Its environment is being built, with its output in the file `log`; "" = no more."""


class BuildStep(Protocol):
    """One program of a build with all that it has started."""

    async def wait(self) -> int | None:
        """Its exit status, negative for a signal, once nothing of it runs any more."""

    async def end(self) -> None:
        """Kill it; returns when nothing of it runs any more."""

    @property
    def used_too_much(self) -> bool:
        """Whether it was killed for the memory that it used."""


class Workshop(Protocol):
    """Where builds run."""

    @property
    def walled(self) -> bool:
        """Whether a build sees nothing of what it is not shown."""

    @property
    def memory_bytes(self) -> int:
        """What all that run at a time may use together."""

    async def prepare(self, folder: Path) -> Path:
        """Make a folder that builds write in, and everything below it; the one to use, which is
        there then. Raises OSError."""

    async def take(self, folder: Path) -> None:
        """Make a folder that builds have written, with all that is in it, the platform's own.
        Raises OSError."""

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        *,
        own: Path,
        reads: Sequence[Path],
        writes: Sequence[Path],
    ) -> BuildStep:
        """Start a program that sees `reads`, and `own` and `writes` to write, with exactly `env`.

        `own` is its build's alone; `own / "tmp"` is its /tmp. Its output is appended to `log`.
        Raises OSError where it cannot be started.
        """


class Tree(Protocol):
    """A manifest's files as a folder."""

    @property
    def root(self) -> str: ...
    @property
    def complete(self) -> bool:
        """Whether no file is still arriving."""

    @property
    def view(self) -> str:
        """Where links of files that still arrive lead to; "" where there are none."""

    @property
    def absent(self) -> Sequence[str]:
        """Paths of files that are not seen before they have arrived."""


class Agent(Protocol):
    """The client of the node's agent."""

    async def tree(self, manifest: str, *, wait: Literal["files", "all"]) -> Tree:
        """The files of a manifest. With `"files"`, `*.safetensors` may still be arriving: they are
        links to where reads wait for them, cannot be opened, or are `absent`.

        Raises `hotplate.cache.errors.CacheError`.
        """

    async def admit(self, path: str, manifests: Iterable[str]) -> None:
        """A socket at `path` that leads to these manifests' files, as long as its folder is there.

        Raises `hotplate.cache.errors.CacheError`.
        """

    async def pull_to_disk(self, url: str) -> Mapping[str, str]:
        """All files of a URL, each's path on this node by its own URL. Raises CacheError."""
