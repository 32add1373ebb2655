"""What builds that mean harm get: a bento's author writes the commands, and the packages' code."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.serving.replica.environments import build
from hotplate.serving.replica.environments.builder import Environment
from hotplate.serving.replica.environments.folder import organization_folder
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.inherited import for_replica
from hotplate.serving.replica.runtime import BentoRuntime
from tests.serving.replica.environments.test_builder import (
    bento_with_wheel,
    digest,
    ensure,
    image_of,
)
from tests.support.replica.replicas import Agent, Phases, environments_in, runtime_of, workload

FLIP = "ln -sfn {target} $VIRTUAL_ENV/bin/python"


def commands(*commands: str) -> dict[str, Any]:
    return {"post_commands": list(commands)}


def output_of(folder: Path, bento: Path) -> str:
    """What the last build of a bento's environment has printed."""
    return environments_in(folder).folder("acme", digest(bento)).log.read_text()


@pytest.fixture
def isolation(tmp_path: Path) -> Isolation:
    isolation = Isolation([tmp_path])
    if isolation.refusal:
        pytest.skip(f"no walls here: {isolation.refusal}")
    return isolation


@pytest.mark.parametrize("walled", [True, False], ids=["walls", "none"])
async def test_a_build_sees_its_own_folder_and_no_file_of_the_platform(
    tmp_path: Path, isolation: Isolation, walled: bool
) -> None:
    secret = tmp_path / "admin-token"
    secret.write_text("the operator's\n")
    mine = "test -w $HOME && test -w $VIRTUAL_ENV && echo mine"
    seen = f"cat {secret} 2>&1; ls {tmp_path}/environments/*/*; {mine}"
    bento = bento_with_wheel(tmp_path / "bento", image=commands(seen))
    environments = environments_in(tmp_path, isolation if walled else None)
    await ensure(environments, bento)
    said = output_of(tmp_path, bento)
    assert ("the operator's" in said) != walled
    assert ("\nbuild.log\n" in said) != walled
    assert "\nmine\n" in said


async def test_a_python_version_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    program.chmod(0o755)
    bento = bento_with_wheel(tmp_path / "bento", image={"python_version": str(program)})
    with pytest.raises(EnvironmentFailed, match=r"image\.python_version.*is none"):
        await ensure(environments_in(tmp_path), bento)
    assert not (tmp_path / "was-run").exists()


async def test_no_file_of_an_environment_is_one_of_the_package_cache(tmp_path: Path) -> None:
    environment = await ensure(environments_in(tmp_path), bento_with_wheel(tmp_path / "bento"))
    (module,) = environment.root.glob("lib/python*/site-packages/tiny.py")
    assert module.stat().st_nlink == 1


async def test_the_interpreter_is_ours_whatever_a_build_has_put_there(tmp_path: Path) -> None:
    flip = FLIP.format(target=tmp_path)
    bento = bento_with_wheel(tmp_path / "bento", image=commands(flip))
    with pytest.raises(EnvironmentFailed, match="another bin/python"):
        await ensure(environments_in(tmp_path), bento)
    assert not list((tmp_path / "environments").glob("*/*/ready"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's builds are other users'")
async def test_an_environment_without_bottom_is_refused(
    tmp_path: Path, isolation: Isolation
) -> None:
    dig = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(1200)]"
    image = commands(f'cd $VIRTUAL_ENV && python -c "{dig}"')
    bento = bento_with_wheel(tmp_path / "bento", image=image)
    environments = environments_in(tmp_path, isolation)
    with pytest.raises(EnvironmentFailed, match="nested folders"):
        await ensure(environments, bento)
    assert not list((tmp_path / "environments").glob("*/*/*/venv")), "nothing of it is left"


async def test_a_replica_is_shown_the_interpreter_of_the_build_whatever_bin_python_leads_to(
    tmp_path: Path,
) -> None:
    bento = bento_with_wheel(tmp_path / "bento")
    environments = environments_in(tmp_path)
    built = await ensure(environments, bento)
    (tmp_path / "engine" / "replicas").mkdir(parents=True)
    built.python.unlink()
    built.python.symlink_to(tmp_path / "engine" / "replicas" / "python")
    runtime = runtime_of(tmp_path, Agent({"bento": bento}))
    command = await runtime.prepare(workload(), "r", str(tmp_path / "r"), Phases())
    assert str(tmp_path / "engine") not in command.reads
    assert str(built.interpreter.parent.parent) in command.reads
    assert command.layers == (str(built.root),)
    assert str(built.root.parent) not in command.reads


async def test_organizations_have_environments_of_their_own_unless_they_trust_each_other(
    tmp_path: Path,
) -> None:
    bento = bento_with_wheel(tmp_path / "bento")

    async def of(organization: str, **settings: Any) -> Environment:
        environments = environments_in(tmp_path, **settings)
        return await environments.ensure(organization, bento, image_of(bento), {})

    mine, theirs = await of("acme"), await of("evil")
    assert mine.root != theirs.root
    assert mine.owner != theirs.owner
    assert (await of("acme")).root == mine.root
    shared = [await of(each, shared=True) for each in ("acme", "evil")]
    assert shared[0].root == shared[1].root
    assert shared[0].root not in (mine.root, theirs.root)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "/etc", ".shared", "", "x" * 300, "a\0b", "é"])
def test_an_organizations_folder_is_one_and_its_own(name: str) -> None:
    folder = organization_folder(name)
    assert Path("/root", folder).parent == Path("/root")
    assert Path(folder).name == folder
    assert folder != ".shared"
    assert len(folder) < 255
    assert organization_folder("default") == "default"


async def test_a_build_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (pipe := tmp_path / "pipe").touch()
    bento = bento_with_wheel(
        tmp_path / "bento", image=commands(f"echo $$ > {pipe}; (setsid sleep 60 & sleep 60)")
    )
    with pytest.raises(EnvironmentFailed, match=r"longer than 1.5 s \(build_timeout_s\)"):
        await ensure(environments_in(tmp_path, limit_s=1.5), bento)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pipe.read_text()), 0)


async def test_a_build_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    hungry = "python -c 'import time; x = bytearray(300 << 20); time.sleep(60)'"
    bento = bento_with_wheel(tmp_path / "bento", image=commands(hungry))
    with pytest.raises(EnvironmentFailed, match=r"more than the 200 MiB .*build_memory_bytes"):
        await ensure(environments_in(tmp_path, memory_bytes=200 << 20), bento)


async def test_a_build_that_prints_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "MOST_LOG_BYTES", 1 << 20)
    bento = bento_with_wheel(tmp_path / "bento", image=commands("yes"))
    with pytest.raises(EnvironmentFailed, match="printed more than 1 MiB"):
        await ensure(environments_in(tmp_path), bento)


async def test_what_the_operators_home_holds_reaches_a_replica_only_where_it_is_shown(
    tmp_path: Path,
) -> None:
    environ = {"HF_HOME": "/home/op/hf", "HOME": "/home/op", "TZ": "UTC", "HF_HUB_OFFLINE": "1"}
    assert for_replica(environ) == environ
    assert for_replica(environ, []) == {"TZ": "UTC", "HF_HUB_OFFLINE": "1"}
    assert "HF_HOME" in for_replica(environ, [Path("/home/op/hf")])
    assert "HF_HOME" not in for_replica({"HF_HOME": "/home/op/hf2"}, [Path("/home/op/hf")])


@pytest.mark.parametrize("walled", [True, False], ids=["walls", "none"])
async def test_a_replica_within_walls_has_a_home_of_its_own_as_its_standby_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walled: bool
) -> None:
    monkeypatch.setenv("HF_HOME", "/home/op/hf")
    bento = bento_with_wheel(tmp_path / "bento")
    runtime = runtime_of(tmp_path, Agent({"bento": bento}), shown=[] if walled else None)
    command = await runtime.prepare(workload(), "r", str(tmp_path / "r"), Phases())
    assert command.warm is not None
    for env in (command.env, command.warm.env):
        assert ("HF_HOME" in env) != walled
        assert env["HOME"] == ("/tmp/home" if walled else os.environ["HOME"])
    assert command.env.get("TMPDIR") == ("/tmp" if walled else command.env.get("TMPDIR"))
    assert command.warm.env.get("TMPDIR") == ("/tmp" if walled else os.environ.get("TMPDIR"))


async def prepared(folder: Path) -> tuple[BentoRuntime, Path, Path]:
    """A runtime with one replica prepared, that replica's folder, and where modules are kept."""
    bento = bento_with_wheel(folder / "bento")
    runtime = runtime_of(folder, Agent({"bento": bento}))
    command = await runtime.prepare(workload(), "r", str(folder / "r"), Phases())
    assert command.warm is not None
    return runtime, folder / "r", Path(command.warm.job["modules"])


async def test_a_replica_notes_its_modules_in_its_own_folder_and_the_platform_keeps_them(
    tmp_path: Path,
) -> None:
    runtime, folder, kept = await prepared(tmp_path)
    assert "bentoml" in json.loads(kept.read_text())
    (folder / "modules.json").write_text('["numpy", "not a name"]')
    await runtime.self_report(str(folder))
    assert json.loads(kept.read_text()) == ["numpy"]
    assert kept.stat().st_mode & 0o777 == 0o644


async def test_a_pipe_or_a_link_in_place_of_its_modules_is_passed_over(tmp_path: Path) -> None:
    runtime, folder, kept = await prepared(tmp_path)
    before = kept.read_text()
    os.mkfifo(folder / "modules.json")
    async with asyncio.timeout(5):
        await runtime.self_report(str(folder))
    assert kept.read_text() == before
