"""Where attacks take place: a real platform, as root or as an ordinary user, with all its walls or
without some of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import update

from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import ORGANIZATION
from hotplate.platform.store.tables import OrganizationRow
from tests.security.evil import EVIL, SECRET, VICTIM
from tests.support.end_to_end.built_once import built_once
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.packages import packages_of

ORDINARY_USER = 54_321
"""Nobody on this machine: what it may do is what any user may."""
CHECKOUT = Path(__file__).parents[2]
AS_USER = CHECKOUT / "tests" / "support" / "as_user.py"
WITHOUT = Path(__file__).with_name("without")
RIVAL = "rival"
"""The organization of hostile code that stands beside the victim's."""
ACTS_FOR = "X-Hotplate-Organization"
DEPLOYMENTS: dict[str, tuple[str, dict[str, str]]] = {
    "evil": (EVIL, {}),
    "victim": (VICTIM, {"MYSECRET": SECRET}),
}
"""The sources of their services, and the variables of their replicas."""


@dataclass(frozen=True)
class Grounds:
    """One platform with the deployments `evil` and `victim`, the victim with a secret in its
    environment."""

    platform: Platform
    rough: RoughClient
    evil: str
    """URL."""
    victim: str
    user: int
    """Whose platform it is."""
    away: Path
    """The names of the walls that are away now."""
    organization: str
    """The hostile deployment's; the victim's is `default`."""

    @contextmanager
    def without(self, wall: str) -> Iterator[None]:
        """It is away meanwhile; one of those that the platform was started with as `removable`."""
        self.away.write_text(wall)
        try:
            yield
        finally:
            self.away.write_text("")

    def canary(self, name: str, text: str = "the platform's own") -> Path:
        """A file of the platform's user in the data directory, which nobody else may see."""
        path = self.platform.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        os.chown(path, self.user, self.user)
        return path


@asynccontextmanager
async def grounds(
    bento: Bento,
    user: int,
    built: Path,
    *,
    without: str = "",
    removable: Sequence[str] = (),
    deployments: Sequence[str] = tuple(DEPLOYMENTS),
    organization: str = ORGANIZATION,
) -> AsyncIterator[Grounds]:
    """A platform of `user`. `without` names a wall to take away for good, `removable` those that
    `Grounds.without` may take away: modules of the folder of that name.

    `bento` is any that `bentoml build` has made, and its environment is kept in `built`. Nothing is
    left of the platform at the end. `organization` is the hostile deployment's.
    """
    folder = Path(tempfile.mkdtemp(prefix="grounds-"))  # pytest's own let no other user through
    away = folder / "away"
    away.write_text(without)
    environ = {"HOME": str(folder), **taken_away(away, *filter(None, (without, *removable)))}
    platform = Platform(
        folder / "data", launcher=_launcher(user), environ=environ, packages=packages_of(user)
    )
    _give(folder, user)
    try:
        await platform.start()
        async with RoughClient(platform) as rough:
            if organization != ORGANIZATION:
                await asyncio.to_thread(add_organization, platform.data, organization)
            urls = {"evil": "", "victim": ""}
            of = {"evil": organization, "victim": ORGANIZATION}
            with built_once(platform.data / "environments", built):
                for name in deployments:
                    source, envs = DEPLOYMENTS[name]
                    rough.http.headers[ACTS_FOR] = of[name]
                    tag = await rough.push(changed(bento, name, source))
                    await rough.deploy(name, tag, **{name.title(): service(**envs)})
                for name in deployments:
                    rough.http.headers[ACTS_FOR] = of[name]
                    await rough.settled(name, "running")
                    page = await rough.call("GET", f"/api/v2/deployments/{name}")
                    urls[name] = page["urls"][0]
            del rough.http.headers[ACTS_FOR]
            evil, victim = urls["evil"], urls["victim"]
            yield Grounds(platform, rough, evil, victim, user, away, organization)
    finally:
        platform.destroy()
        shutil.rmtree(folder, ignore_errors=True)


def add_organization(data: Path, name: str) -> None:
    """With its name as its uid too, so that what it downloads is kept for the next platform."""
    store = Store(Database(f"sqlite:///{data}/hotplate.db"))
    try:
        store.organizations.create(name, "")
        with store.database.session() as session:
            found = update(OrganizationRow).where(OrganizationRow.name == name)
            session.execute(found.values(uid=name))
    finally:
        store.close()


def taken_away(now: Path, *walls: str) -> dict[str, str]:
    """The variables of a platform some of whose walls can be away: those that the file names."""
    if not walls:
        return {}
    return {
        "PYTHONPATH": str(WITHOUT),
        "HOTPLATE_TEST_REMOVABLE": ",".join(walls),
        "HOTPLATE_TEST_WITHOUT": str(now),
    }


def _give(folder: Path, user: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user)


def _launcher(user: int) -> list[str]:
    """What starts a program as that user."""
    if user == os.geteuid():
        return []
    needed = {sys.prefix, sys.base_prefix, str(CHECKOUT)}
    return [sys.executable, str(AS_USER), str(user), *sorted(needed), "--"]


def changed(bento: Bento, name: str, source: str) -> Bento:
    """The bento with another `service.py`, whose one service is the name in capitals."""
    services = [
        {**each, "name": name.title(), "class_name": name.title()}
        for each in bento.manifest["services"]
    ]
    return bento.changed(
        name,
        {"src/service.py": source},
        services=services,
        entry_service=name.title(),
        service=f"service:{name.title()}",
    )


def service(**env: str) -> dict[str, object]:
    """A service's settings: one replica, with these variables."""
    envs = [{"name": name, "value": value} for name, value in env.items()]
    return {"envs": envs, "scaling": {"min_replicas": 1, "max_replicas": 1}}
