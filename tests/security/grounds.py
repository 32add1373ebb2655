"""Where attacks take place: a real platform, as root or as an ordinary user, with all its walls or
without some of them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.security.evil import EVIL, SECRET, VICTIM
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.packages import packages_of

ORDINARY_USER = 54_321
"""Nobody on this machine: what it may do is what any user may."""
CHECKOUT = Path(__file__).parents[2]
AS_USER = CHECKOUT / "tests" / "support" / "as_user.py"
WITHOUT = Path(__file__).with_name("without")


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
    bento: Bento, user: int, *, without: str = "", settings: str = "", victim: bool = True
) -> AsyncIterator[Grounds]:
    """A platform of `user`; `without` names walls to take away, modules of the folder of that name.

    `bento` is any that `bentoml build` has made. Nothing is left of it at the end.
    """
    folder = Path(tempfile.mkdtemp(prefix="grounds-"))  # pytest's own let no other user through
    environ = {"HOME": str(folder)}
    if without:
        environ |= {"PYTHONPATH": str(WITHOUT), "HOTPLATE_TEST_WITHOUT": without}
    platform = Platform(
        folder / "data",
        settings=settings,
        launcher=_launcher(user),
        environ=environ,
        packages=packages_of(user),
    )
    _give(folder, user)
    try:
        await platform.start()
        async with RoughClient(platform) as rough:
            urls = {"victim": ""}
            for name, source, env in (
                ("evil", EVIL, {}),
                *([("victim", VICTIM, {"MYSECRET": SECRET})] if victim else []),
            ):
                tag = await rough.push(changed(bento, name, source))
                await rough.deploy(name, tag, **{name.title(): service(**env)})
            for name in ("evil", *(["victim"] if victim else [])):
                await rough.settled(name, "running")
                urls[name] = await platform.url_of(name)
            yield Grounds(platform, rough, urls["evil"], urls["victim"], user)
    finally:
        platform.destroy()
        shutil.rmtree(folder, ignore_errors=True)


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
