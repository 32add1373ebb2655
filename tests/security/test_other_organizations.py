"""A hostile replica, and a hostile build, of one organization beside another one's deployment with
the same lock of requirements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from hotplate.platform.store.records import ORGANIZATION
from tests.security.evil import SECRET, attack, building
from tests.security.grounds import ACTS_FOR, RIVAL, Grounds
from tests.support.end_to_end.rough_client import Bento, RoughClient

LOOK = """
import os

def names(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        return error.strerror

def reads(path):
    try:
        with open(path, "rb") as file:
            return file.read(100_000).decode(errors="replace")
    except OSError as error:
        return error.strerror

answer = dict(
    folders={{path: names(path) for path in {folders!r}}},
    mounts=reads("/proc/self/mountinfo"),
    variables=[reads(f"/proc/{{pid}}/environ") for pid in names("/proc") if pid.isdecimal()],
    memory=names("/dev/shm"),
    sockets=reads("/proc/net/unix"),
)
"""
POISON = (
    "for d in ~ $UV_CACHE_DIR $XDG_CACHE_HOME $TMPDIR /tmp /var/tmp /dev/shm; do "
    "echo '[global]\\nindex-url = http://127.0.0.1:9/' > $d/pip.conf; "
    "echo evil > $d/evil.pth; done",
    "git config --global url.http://127.0.0.1:9/.insteadOf https://; echo done",
    "ls {packages} {environments}; cat /proc/*/environ; exit 1",
)
CALLS = """
import os, urllib.error, urllib.request

def asks(url, token):
    request = urllib.request.Request(url, headers=dict(Authorization="Bearer " + token))
    request.add_header("X-YATAI-API-TOKEN", token)
    try:
        return urllib.request.urlopen(request, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)

tokens = ["", "x", os.environ.get("BENTO_CLOUD_API_KEY", "x")]
answer = [[asks(url, token) for token in tokens] for url in {urls!r}]
"""


def owners(folder: Path) -> list[str]:
    """Whose folders are there."""
    return sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))


def digests(field: Grounds, owner: str) -> set[str]:
    folder = field.platform.data / "environments" / owner
    return {each.name for each in folder.iterdir() if (each / "ready").exists() or each.is_dir()}


class TestAReplica:
    async def test_has_an_environment_of_its_own_though_the_lock_is_the_same(
        self, field: Grounds
    ) -> None:
        assert digests(field, RIVAL) & digests(field, ORGANIZATION)

    async def test_sees_nothing_of_the_others(self, field: Grounds) -> None:
        data = field.platform.data
        (replica,) = (data / "engine/replicas").glob("victim-*")
        folders = [
            str(path)
            for path in (
                data,
                data / "environments" / ORGANIZATION,
                data / "engine",
                data / "engine/standbys",
                data / "agent",
                data / "blobs",
                data / "run",
                replica,
                replica / "home",
            )
        ]
        seen: dict[str, Any] = await attack(field.evil, LOOK.format(folders=folders))
        for path, found in seen["folders"].items():
            below = [] if isinstance(found, str) else found
            assert not [name for name in below if "victim" in name or name == ORGANIZATION], path
            assert "hotplate.db" not in below
        assert replica.name not in seen["mounts"]
        assert f"environments/{ORGANIZATION}/" not in seen["mounts"]
        assert SECRET not in "".join(seen["variables"])
        assert replica.name not in seen["sockets"]

    async def test_opens_nothing_of_the_platform_s_with_the_tokens_that_it_has(
        self, field: Grounds
    ) -> None:
        ports = field.platform.noted("ports")
        api = field.platform.url
        urls = [
            f"{api}/api/v2/deployments/victim",
            f"{api}/api/v1/hotplate/deployments/victim/logs",
            f"{api}/api/v1/org_secrets",
            f"{api}/metrics",
            f"{api}/internal/tasks/line",
            f"http://127.0.0.1:{ports['gateway']}/metrics",
            f"http://127.0.0.1:{ports['gateway']}/deployments/default/victim/queue",
            f"http://127.0.0.1:{ports['agent']}/metrics",
            f"http://127.0.0.1:{ports['agent']}/v1/held",
            f"http://127.0.0.1:{ports['agent']}/v1/trees",
        ]
        found = await attack(field.evil, CALLS.format(urls=urls))
        for url, statuses in zip(urls, found, strict=True):
            assert set(statuses) <= {401, 403, 404, 429}, url  # ten wrong tries are a minute's


class TestABuild:
    async def test_leaves_nothing_where_another_organization_builds(
        self, field: Grounds, any_bento: Bento
    ) -> None:
        data = field.platform.data
        said = {name: data / name for name in ("packages", "environments")}
        commands = [each.format(**said) for each in POISON]
        async with RoughClient(field.platform) as rough:
            rough.http.headers[ACTS_FOR] = RIVAL
            await rough.deploy(
                "builder", await rough.push(building(any_bento, "builder", *commands))
            )
            await rough.settled("builder", "image-build-failed")
            await rough.call("DELETE", "/api/v2/deployments/builder")
        logs = (data / "environments" / RIVAL).glob("*/build.log")
        told = "".join(text for log in logs if "insteadOf" in (text := log.read_text()))
        assert "done" in told
        assert SECRET not in told
        assert ORGANIZATION not in told.split("insteadOf")[-1].split()
        for name in ("evil.pth", "pip.conf", ".gitconfig"):
            assert not list((data / "environments" / ORGANIZATION).rglob(name))
            for place in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")):
                assert not (place / name).exists()
        async with aiohttp.request("POST", f"{field.victim}/greet", json={}) as answer:
            assert answer.status == 200
