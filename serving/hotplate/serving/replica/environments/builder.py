"""Python environments of bentos: built once per specification and organization, then shared.

A bento's lock, Python and commands are its `spec`, whose digest names the environment. An
environment that exists is used (`folder`), one that another node has published is taken
(`registry`), and otherwise it is built (`build`), once for all that wait, with a Python that the
platform has chosen (`interpreter`). The reason of a failed build is found in its output
(`diagnosis`). The recorded use (`usage`) decides which environments are removed.
"""

from __future__ import annotations

import asyncio
import math
import os
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from hotplate.cache.errors import NoSpace
from hotplate.cache.volumes.taking.lesson import module_names
from hotplate.deploy.builds import BuildRunner
from hotplate.machine import foreign_folder
from hotplate.machine.background import BackgroundTasks, retrieve_error
from hotplate.machine.free_space import FreeSpace, full, is_full
from hotplate.serving.replica.environments.build import Build, BuildContext
from hotplate.serving.replica.environments.folder import (
    SHARED,
    EnvironmentFolder,
    ReadyEnvironment,
    oldest_at,
    organization_folder,
)
from hotplate.serving.replica.environments.interpreter import Interpreters
from hotplate.serving.replica.environments.overview import EnvironmentOverview
from hotplate.serving.replica.environments.registry import EnvironmentRegistry, note_name
from hotplate.serving.replica.environments.spec import EnvironmentSpec, read_spec
from hotplate.serving.replica.environments.usage import Usage, removable
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.inherited import for_build
from hotplate.serving.replica.secret_values import SecretSet

BUILD_LIMIT_S = 1800.0
NO_SECRETS = SecretSet()
_GONE = ".gone-"
_USED = ".used"
_CLAIM = ".organization"
"""Whose a folder is that is named after an organization."""
_OURS = ".uv"
"""The cache of `uv` for our own searches of interpreters."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that is ready."""

    root: Path
    interpreter: Path
    """The target of its `python` link."""
    digest: str
    owner: str
    """The name of its organization's folder."""
    modules: Path
    """The file with the modules that its last replica had imported when it was ready."""
    built: bool
    """Whether the caller had to wait for it to be built."""

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"


@dataclass(frozen=True)
class _Choice:
    """Which environments of one folder stay."""

    wanted: Callable[[], Set[str] | None]
    spare: int
    used_before: float


class EnvironmentBuilder:
    """The environments under one folder, which belongs to this process alone.

    `<root>/<owner>/<digest>/` is a folder as `environment_folder.py` says. An attempt that a
    kill left behind, and which may still be written by its `uv`, is never built upon.
    `<root>/<owner>/.used/` says which bento uses which.
    """

    def __init__(
        self,
        root: Path,
        builds: BuildRunner,
        packages: Path,
        *,
        shared: bool = False,
        disk_reserve_bytes: int = 0,
        limit_s: float = BUILD_LIMIT_S,
        registry: EnvironmentRegistry | None = None,
    ) -> None:
        """`builds` is where builds run, `packages` a folder for what they download, below it one
        per organization; `shared` = organizations trust each other, and share all of it.

        `disk_reserve_bytes` of the disk are left free; 0 = the usual. What is on the `registry` is
        not built, and what is built is put there.
        """
        self._root = root
        self._builds = builds
        self._packages = packages
        self._shared = shared
        self._room = FreeSpace(root, disk_reserve_bytes)
        self._limit_s = limit_s
        self._uv = find_uv_bin()
        self._interpreters = Interpreters(self._uv, root / _OURS)
        self._registry = registry
        self._adopted: dict[str, str] = {}
        """The folders that older versions have named after organizations, by the owner."""
        self._building: dict[Path, asyncio.Task[ReadyEnvironment]] = {}
        self._publishing = BackgroundTasks()
        self.overview = EnvironmentOverview(root, lambda: self._building.keys())

    async def ensure(
        self,
        owned_by: str,
        bento: Path,
        image: Mapping[str, Any],
        build_env: Mapping[str, str],
        tell: Callable[[str], None] = lambda log: None,
        secrets: SecretSet = NO_SECRETS,
    ) -> Environment:
        """The environment of an organization's unpacked bento; built now if there is none yet.

        `owned_by` is what the organization is known by for ever (`Workload.owned_by`). A bento is
        known by the name of its folder, the digest of its files. `image` is the mapping of that
        name in `bento.yaml`; `build_env` is set while building. `tell` is told the file that the
        build's output goes to while the caller waits for one, and then "". With `secrets` the
        environment is the organization's own, also where all of them share; another value makes
        another environment.
        A caller that is cancelled leaves the build going on for the others. Raises
        `EnvironmentFailed`.
        """
        spec = await asyncio.to_thread(read_spec, bento, image, build_env, secrets)
        owner = self._own(owned_by) if secrets else self._owner(owned_by)
        folder = EnvironmentFolder(self._root / owner / spec.digest)
        # On the loop, as is its opposite in `sweep`.
        first = Usage(folder.path.parent / _USED).note(spec.digest, bento.name)
        found, built = None, False
        if folder.path not in self._building:
            found = await asyncio.to_thread(folder.found)
        if found is not None and first and self._registry is not None:
            self._publishing.start(self._registry.use(owner, spec.digest, bento.name))
        if found is None:
            built = True
            tell(str(folder.log))
            building = self._building.get(folder.path) or self._start(spec, owner, folder)
            try:
                found = await asyncio.shield(building)
            finally:
                tell("")
        return Environment(found.root, found.interpreter, spec.digest, owner, folder.modules, built)

    def folder(self, owned_by: str, digest: str) -> EnvironmentFolder:
        """What there is of one environment."""
        return EnvironmentFolder(self._root / self._owner(owned_by) / digest)

    def adopt(self, organization: str, owned_by: str, made_at: float) -> None:
        """Older versions have named the folder of an organization after it: that stays its own, as
        replicas run from there, unless something in it is older than the organization (`made_at`,
        Unix seconds) and so an earlier one's of its name. To be called before anything else."""
        name = organization_folder(organization)
        claim = self._root / name / _CLAIM
        if not (self._root / name / _USED).is_dir() or name == organization_folder(owned_by):
            return
        if not claim.exists():
            if oldest_at(self._root / name) < made_at:
                return
            draft = claim.with_name(f"{_CLAIM}.{uuid.uuid4().hex}")
            draft.write_text(owned_by, encoding="utf-8")
            draft.replace(claim)
        if claim.read_text(encoding="utf-8") == owned_by:
            self._adopted[owned_by] = name

    async def note_modules(self, environment: Environment, reported: Any) -> None:
        """Keep a replica's report of its imports."""
        if names := module_names(reported):
            folder = EnvironmentFolder(environment.modules.parent)
            with suppress(OSError):  # a full disk, or an environment that is being removed
                await asyncio.to_thread(folder.note_modules, names)

    async def sweep(
        self,
        wanted: Callable[[], Set[str] | None],
        spare: int,
        used_before: float = math.inf,
        *,
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Remove environments that no `wanted` bento uses and that were used last before that
        moment (Unix seconds), except for the `spare` ones used last; returns their sizes in bytes.
        An environment without a recorded use stays. While it is not known what is wanted, all do.
        """
        gone: dict[str, int] = {}
        # Older versions had one folder for all organizations, which is no longer used.
        for owner, kept in (*((owner, spare) for owner in self._owners()), (self._root, 0)):
            choice = _Choice(wanted, kept, used_before)
            gone |= await self._sweep(owner, choice, dry_run=dry_run)
        return gone

    async def gone(self, owners: Callable[[], Awaitable[Set[str]]]) -> list[str]:
        """The folders of organizations that are none of these `owners`, which are asked for last:
        one that is made meanwhile is among them."""
        there = [folder.name for folder in self._owners()]
        kept = {SHARED, *map(self._own, await owners())}
        building = {path.parent.name for path in self._building}
        return [name for name in there if name not in kept and name not in building]

    async def forget(self, folders: Sequence[str]) -> None:
        """Remove these folders of organizations, and what their builds have downloaded."""
        for owner in (self._root / name for name in folders):
            # In this moment, and the environments last: a kill leaves what names the rest.
            with suppress(FileNotFoundError):
                (self._packages / owner.name).rename(self._packages / f"{_GONE}{uuid.uuid4().hex}")
            owner.rename(owner.with_name(f"{_GONE}{uuid.uuid4().hex}"))
        for folder in (self._root, self._packages):
            for aside in await asyncio.to_thread(_matching, folder, f"{_GONE}*"):
                with suppress(OSError):
                    await foreign_folder.aside_for_long(foreign_folder.remove_tree, aside)

    async def close(self) -> None:
        """Stop what is being built."""
        building = list(self._building.values())
        for task in building:
            task.cancel()
        await asyncio.gather(*building, return_exceptions=True)
        await self._publishing.cancel()

    async def published(self) -> None:
        """Returns when everything that was built so far is published."""
        await self._publishing.finish()

    def manifests(self) -> set[str]:
        """The manifests of environments that were taken from other nodes and have to stay."""
        taken = (path for places in ("*/*/taken", "*/taken") for path in self._root.glob(places))
        return set(filter(None, (EnvironmentFolder(path.parent).manifest() for path in taken)))

    def notes(self) -> set[str]:
        """The names of the registry's notes of all environments that are here."""
        return {
            note_name(owner.name, use.environment)
            for owner in self._owners()
            for use in Usage(owner / _USED).read()
        }

    def folders(self, owners: Iterable[str]) -> dict[str, str]:
        """The names of the folders of these organizations, with the owner of each; "" for the one
        that all of them share."""
        return {self._own(owner): owner for owner in owners} | {SHARED: ""}

    def _owner(self, owned_by: str) -> str:
        return SHARED if self._shared else self._own(owned_by)

    def _own(self, owned_by: str) -> str:
        """The name of the folder that is an organization's alone."""
        return self._adopted.get(owned_by) or organization_folder(owned_by)

    def _owners(self) -> Iterator[Path]:
        """The folders of organizations."""
        for used in self._root.glob(f"*/{_USED}"):
            if not used.parent.name.startswith(_GONE):
                yield used.parent

    async def _sweep(self, owner: Path, choice: _Choice, *, dry_run: bool) -> dict[str, int]:
        usage = Usage(owner / _USED)
        # From here to the last new name nothing is awaited: what is wanted stays so.
        wanted = choice.wanted()
        if wanted is None:
            return {}
        uses = [use for use in usage.read() if owner / use.environment not in self._building]
        gone = removable(uses, wanted, choice.spare, choice.used_before)
        if dry_run:
            return await asyncio.to_thread(_sizes, [(one, owner / one) for one in gone])
        aside = {digest: owner / f"{_GONE}{uuid.uuid4().hex}" for digest in gone}
        for digest in gone:
            with suppress(FileNotFoundError):
                # From now on no caller takes for an environment what is being removed.
                (owner / digest).rename(aside[digest])
            usage.forget(digest)
        for use in uses:
            if use.environment not in gone:
                usage.trim(use.environment, wanted)
        sizes = await asyncio.to_thread(_sizes, list(aside.items()))
        for folder in await asyncio.to_thread(_matching, owner, f"{_GONE}*"):
            with suppress(OSError):
                await foreign_folder.aside_for_long(foreign_folder.remove_tree, folder)
        return sizes

    def _start(
        self, spec: EnvironmentSpec, owner: str, folder: EnvironmentFolder
    ) -> asyncio.Task[ReadyEnvironment]:
        # The log must not show the output of an earlier build.
        folder.log.unlink(missing_ok=True)
        task = asyncio.create_task(self._take_or_build(spec, owner, folder))
        self._building[folder.path] = task

        task.add_done_callback(lambda _: self._building.pop(folder.path))
        task.add_done_callback(retrieve_error)  # every waiter may have been cancelled
        return task

    async def _take_or_build(
        self, spec: EnvironmentSpec, owner: str, folder: EnvironmentFolder
    ) -> ReadyEnvironment:
        """Raises `EnvironmentFailed`."""
        taken = (
            await self._registry.take(owner, spec.digest, spec.bento.name)
            if self._registry is not None
            else None
        )
        if taken is not None:
            found = ReadyEnvironment(taken.root, taken.interpreter)
            await asyncio.to_thread(folder.note_taken, taken.manifest, found)
            return found
        found = await self._build(spec, owner, folder)
        if self._registry is not None:
            self._publishing.start(
                self._registry.publish(
                    owner, spec.digest, spec.bento.name, found.root, found.interpreter
                )
            )
        return found

    async def _build(
        self, spec: EnvironmentSpec, owner: str, folder: EnvironmentFolder
    ) -> ReadyEnvironment:
        """Raises `EnvironmentFailed`."""
        inherited = for_build(os.environ)
        interpreter = await self._interpreters.find(spec.python_version, inherited)
        packages = self._packages / owner
        context = BuildContext(packages, self._uv, self._builds, self._room, self._limit_s)
        build = Build(spec, folder, interpreter, context)
        clock = asyncio.get_running_loop().time
        failed, began_at = True, clock()
        try:
            await foreign_folder.aside_for_long(folder.empty)
            await build.run()
            await asyncio.to_thread(
                folder.note_ready, build.attempt, interpreter, clock() - began_at
            )
            failed = False
        except NoSpace as error:
            raise EnvironmentFailed(str(error), retry=True, no_room=True) from error
        except OSError as error:
            if is_full(error):
                reason = full(error, self._root)
                raise EnvironmentFailed(reason, retry=True, no_room=True) from error
            raise
        finally:
            await build.close(failed=failed)
        return build.found


def _sizes(folders: Sequence[tuple[str, Path]]) -> dict[str, int]:
    """The bytes of each, by its key; what a build has written there is not trusted."""
    return {key: foreign_folder.tree_bytes(path) for key, path in folders}


def _matching(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))
