"""Secrets by the stock client: they reach builds and replicas, and stand in clear on no disk."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import aiohttp
import pytest

from tests.cluster.organization import ClusterPlatform
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.searched import places_of
from tests.support.patience import until
from tests.support.services.bentos import IMAGE
from tests.support.services.calling import Refused, call, process_of

pytestmark = pytest.mark.client

VAULT = (
    IMAGE
    + r'''

import hashlib
from pathlib import Path

image.run(
    'for n in 0 1 2 3 4; do '
    'eval "v=\$BUILD_ENV_$n"; echo "variable $v"; printf %s "$v" | sha256sum >> $VIRTUAL_ENV/env; '
    'f=$BENTOML_HOME/of/build/b$n; echo "file $(cat $f)"; sha256sum < $f >> $VIRTUAL_ENV/files; '
    'stat -L -c "mode %a" $f; done'
)


@bentoml.service(image=image, envs=[{"name": "RUN_ENV_0", "value": "the author's"}])
class Vault:
    """It shows digests only: what it answers is searched too."""

    @bentoml.api
    def sums(self) -> dict:
        def digest(text: str) -> str:
            return hashlib.sha256(text.encode()).hexdigest()

        files = [Path(os.environ["BENTOML_HOME"], "of", "run", f"r{n}") for n in range(5)]
        built = Path(os.environ["VIRTUAL_ENV"])
        return {
            "run_env": [digest(os.environ.get(f"RUN_ENV_{n}", "")) for n in range(5)],
            "run_files": [digest(file.read_text()) for file in files],
            "build_env": [line.split()[0] for line in (built / "env").read_text().splitlines()],
            "build_files": [line.split()[0] for line in (built / "files").read_text().splitlines()],
            "modes": sorted({f"{file.stat().st_mode & 0o7777:o}" for file in files}),
            "for builds": [name for name in os.environ if name.startswith("BUILD_ENV")],
            "process": me(),
        }
'''
)
KINDS = ("run_env", "run_files", "build_env", "build_files")


@dataclass
class Vault:
    """A deployment with 20 random values, and all that was said meanwhile."""

    platform: AnyPlatform
    laptop: Laptop
    values: dict[str, list[str]]
    url: str = ""
    said: list[str] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    """Values that were replaced."""

    async def bentoml(self, *arguments: str, fails: bool = False) -> str:
        printed = await self.laptop.bentoml(*arguments, fails=fails)
        self.said.append(printed)
        return printed

    async def sums(self) -> Any:
        answer = await call(f"{self.url}/sums")
        self.said.append(json.dumps(answer))
        return answer

    def expected(self) -> dict[str, list[str]]:
        return {kind: list(map(digest, values)) for kind, values in self.values.items()}

    async def restarted(self) -> None:
        """Its process is killed, or its pod deleted, and another one serves."""
        before = (await self.sums())["process"]
        if isinstance(self.platform, ClusterPlatform):
            (replica,) = await self.platform.replicas("vault", "ready")
            await self.platform.delete_pod(replica["id"])
        else:
            os.kill(process_of(before), signal.SIGKILL)

        async def again() -> bool:
            with suppress(aiohttp.ClientError, Refused):
                return bool((await self.sums())["process"] != before)
            return False

        await until(again)

    async def ask_everything(self) -> None:
        """What the platform says of all that there is."""
        pages = ("", "/events", "/decisions", "/logs")
        for name in pages:
            self.said.append(json.dumps(await self.platform.ask("vault", name)))
        for page in ("platform", "events", "keys", "environments"):
            with suppress(AssertionError):
                self.said.append(json.dumps(await self.platform.page(page)))
        for words in (("status", "vault"), ("logs", "vault"), ("events", "vault")):
            self.said.append(await self.platform.hotplate(*words))
        await self.bentoml("secret", "list", "-o", "json")
        await self.bentoml("deployment", "get", "vault")

    async def found(self) -> list[str]:
        """Where a value stands in clear: in what the platform keeps, or in what was said."""
        values = [*self.old, *(value for values in self.values.values() for value in values)]
        told = "\n".join(self.said)
        places = ["an answer" for value in values if value in told]
        return places + await self.kept(values)

    async def kept(self, values: list[str]) -> list[str]:
        """In which files the platform has one of them, or in which objects."""
        if isinstance(self.platform, ClusterPlatform):
            return await self.platform.objects_with(values)
        assert isinstance(self.platform, Platform)
        return places_of(values, self.platform)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def vault(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Vault]:
    """A running deployment; its values were given as a user gives them."""
    folder = tmp_path_factory.mktemp("vault")
    if request.config.getoption("--engine") == "kubernetes":
        yield asyncio.run(deployed(request.getfixturevalue("platform"), folder))
        return
    platform = Platform(folder / "data")
    try:
        asyncio.run(platform.start())
        yield asyncio.run(deployed(platform, folder))
        assert asyncio.run(platform.stop()) == 0
    finally:
        platform.destroy()


async def deployed(platform: AnyPlatform, folder: Path) -> Vault:
    laptop = await Laptop.at(folder / "laptop", platform)
    vault = Vault(platform, laptop, {kind: [token_urlsafe(24) for _ in range(5)] for kind in KINDS})
    for kind, values in vault.values.items():
        stage, _, type_ = kind.partition("_")
        flags = ["--stage", "build" if stage == "build" else "runtime"]
        flags += ["--type", "file", "-p", f"$BENTOML_HOME/of/{stage}"] if type_ == "files" else []
        prefix = stage[0] if type_ == "files" else f"{stage.upper()}_ENV_"
        given = [f"{prefix}{n}={value}" for n, value in enumerate(values)]
        name = kind.replace("_", "-")
        assert "created successfully" in await vault.bentoml(
            "secret", "create", name, *flags, *given
        )
    await laptop.build("vault", VAULT)
    names = [word for kind in KINDS for word in ("--secret", kind.replace("_", "-"))]
    await vault.bentoml("deploy", "vault:v1", "-n", "vault", "--timeout", "300", *names)
    vault.url = await platform.url_of("vault")
    return vault


@pytest.mark.essential
async def test_builds_and_replicas_have_them_and_no_disk_and_no_answer_has(vault: Vault) -> None:
    sums = await vault.sums()
    assert {kind: sums[kind] for kind in KINDS} == vault.expected()
    assert (sums["modes"], sums["for builds"]) == (["400"], [])
    if isinstance(vault.platform, Platform):
        (log,) = (vault.platform.data / "environments").glob("*/*/build.log")
        assert log.read_text().count("variable ***\nfile ***\nmode 400\n") == 5
    await vault.ask_everything()
    assert await vault.found() == []


@pytest.mark.one_machine("it kills the platform's processes")
async def test_a_replica_that_crashes_has_them_again_also_after_a_kill_of_the_control_plane(
    vault: Vault,
) -> None:
    assert isinstance(vault.platform, Platform)
    platform = vault.platform
    await vault.restarted()
    before = platform.pid("control-plane")
    process = (await vault.sums())["process"]
    os.kill(before, signal.SIGKILL)

    async def back() -> bool:
        return platform.pid("control-plane") != before and await platform.healthy()

    await until(back)
    assert (await vault.sums())["process"] == process, "it was adopted"
    await vault.restarted()
    sums = await vault.sums()
    assert {kind: sums[kind] for kind in KINDS} == vault.expected()
    await vault.ask_everything()
    assert await vault.found() == []


async def test_a_changed_value_is_for_replicas_that_start_afterwards(vault: Vault) -> None:
    vault.old += vault.values["run_files"]
    vault.values["run_files"] = [token_urlsafe(24) for _ in range(5)]
    before = (await vault.sums())["run_files"]
    given = [f"r{n}={value}" for n, value in enumerate(vault.values["run_files"])]
    flags = ("--type", "file", "-p", "$BENTOML_HOME/of/run")
    assert "applied" in await vault.bentoml("secret", "apply", "run-files", *flags, *given)
    assert (await vault.sums())["run_files"] == before
    await vault.restarted()
    assert (await vault.sums())["run_files"] == vault.expected()["run_files"]
    assert await vault.found() == []


@pytest.mark.one_machine("it looks into the platform's files")
async def test_a_new_key_encrypts_them_anew_while_all_runs(vault: Vault) -> None:
    (old,) = (await vault.platform.page("keys"))["items"]
    printed = await vault.platform.hotplate("key", "rotate", "--json")
    (new,) = json.loads(printed)["items"]
    assert (new["id"] != old["id"], new["values"]) == (True, 20)
    await vault.restarted()
    sums = await vault.sums()
    assert {kind: sums[kind] for kind in KINDS} == vault.expected()
    assert isinstance(vault.platform, Platform)
    keys = (vault.platform.data / "secret-keys").read_text()
    assert (old["id"] in keys, new["id"] in keys) == (False, True)
    await vault.ask_everything()
    assert await vault.found() == []


async def test_a_file_names_them_and_so_does_an_update(vault: Vault) -> None:
    await vault.bentoml("secret", "create", "extra", "EXTRA=e")
    file = vault.laptop.home / "filed.yaml"
    names = [kind.replace("_", "-") for kind in KINDS]
    about = {"name": "filed", "bento": "vault:v1", "secrets": names}
    file.write_text(json.dumps(about))
    await vault.bentoml("deploy", "-f", str(file))
    sums = await call(f"{await vault.platform.url_of('filed')}/sums")
    assert {kind: sums[kind] for kind in KINDS} == vault.expected()
    flags = [word for name in (*names, "extra") for word in ("--secret", name)]
    await vault.bentoml("deployment", "update", "filed", *flags)
    printed = " ".join((await vault.bentoml("secret", "delete", "extra", fails=True)).split())
    assert "secret 'extra' is used by the deployment 'filed'" in printed
    await vault.platform.delete("filed")
    await vault.bentoml("secret", "delete", "extra")


async def test_a_canary_has_those_of_its_own_version_and_the_clients_update_keeps_it(
    vault: Vault,
) -> None:
    plain, *own = (token_urlsafe(24) for _ in range(11))
    variables, files = own[:5], own[5:]
    given = [f"RUN_ENV_{n}={value}" for n, value in enumerate(variables)]
    await vault.bentoml("secret", "create", "next-env", "--stage", "runtime", *given)
    given = [f"r{n}={value}" for n, value in enumerate(files)]
    flags = ("--stage", "runtime", "--type", "file", "-p", "$BENTOML_HOME/of/run")
    await vault.bentoml("secret", "create", "next-files", *flags, *given)
    names = [kind.replace("_", "-") for kind in KINDS]
    version = {
        "bento": "vault:v1",
        "weight": 0,
        "secrets": ["next-env", "next-files", "build-env", "build-files"],
        "envs": [{"name": "COLOUR", "value": plain}],
    }
    about: dict[str, Any] = {"name": "vault", "bento": "vault:v1", "cluster": "default"}
    about |= {"secrets": names, "canary": {"route_type": "random", "versions": {"next": version}}}
    file = vault.laptop.home / "canary.yaml"
    file.write_text(json.dumps(about))
    await vault.bentoml("deployment", "apply", "-f", str(file))
    await vault.bentoml("deployment", "update", "vault", "--env", "COLOUR=blue")
    page = f"{vault.platform.url}/api/v2/deployments/vault"
    token = {"X-YATAI-API-TOKEN": vault.platform.token}

    async def both_ready() -> bool:
        found = (await vault.platform.ask("vault", "/rollout"))["versions"]
        return {(each["version"], each["ready"] > 0) for each in found} == {
            ("main", True),
            ("next", True),
        } and (await vault.platform.ask("vault"))["status"] == "running"

    await until(both_ready)
    async with aiohttp.ClientSession() as http:
        async with http.get(page, headers=token) as answer:
            shown = await answer.json()
        vault.said.append(json.dumps(shown))
        assert shown["manifest"]["routing"]["weights"] == {"main": 100, "next": 0}
        for name, expected in (
            ("main", [vault.values["run_env"], vault.values["run_files"]]),
            ("next", [variables, files]),
        ):
            headers = {"Hotplate-Version": name}
            async with http.post(f"{vault.url}/sums", json={}, headers=headers) as answer:
                sums = await answer.json()
            assert [sums["run_env"], sums["run_files"]] == [
                list(map(digest, values)) for values in expected
            ], name
    on_one_machine = isinstance(vault.platform, Platform)  # a cluster has all variables in Secrets
    assert await vault.kept([plain if on_one_machine else "vault"]), "what is no secret is found"
    vault.old += own
    await vault.ask_everything()
    assert await vault.found() == []


@pytest.mark.one_machine("it looks into the platform's files")
async def test_a_backup_has_none_in_clear(vault: Vault) -> None:
    phrase, file = vault.laptop.home / "phrase", vault.laptop.home / "backup"
    phrase.write_text("correct horse battery staple")
    await vault.platform.hotplate("backup", str(file), "--passphrase-file", str(phrase))
    content = [file.read_bytes()]
    with tarfile.open(file) as archive:
        for member in archive:
            if member.name.endswith(".gz") and (packed := archive.extractfile(member)):
                content.append(gzip.decompress(packed.read()))
    values = [value for values in vault.values.values() for value in values]
    whole = b"".join(content)
    assert b"secret_values" in whole
    assert [value for value in values if value.encode() in whole] == []


async def test_what_the_client_does_wrong_is_a_sentence_of_it(vault: Vault) -> None:
    for arguments, said in (
        (("secret", "delete", "run-env"), "is used by the deployment 'vault'"),
        (("secret", "create", "run-env", "A=b"), "one of that name exists"),
        (("secret", "apply", "nope", "A=b"), "Secret not found"),
        (("secret", "create", "x", "A-B=c"), "'A-B' is no name of a variable"),
        (
            ("secret", "create", "x", "-t", "file", "-p", "/etc", "a=b"),
            "is not below $BENTOML_HOME",
        ),
        (("deploy", "vault:v1", "-n", "other", "--secret", "nope"), "secret 'nope' does not exist"),
    ):
        printed = " ".join((await vault.bentoml(*arguments, fails=True)).split())
        assert said in printed
        assert "Traceback" not in printed
    await vault.bentoml("secret", "create", "unused", "A=b", "-d", "nobody's")
    assert "unused" in await vault.bentoml("secret", "list", "--search", "unu")
    await vault.bentoml("secret", "delete", "unused")
    assert "unused" not in await vault.bentoml("secret", "list")
