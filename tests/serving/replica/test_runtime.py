from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotplate.cache.errors import CacheError, NoSpace, UnknownManifest
from hotplate.cache.origins.hubs import Hubs
from hotplate.deploy.errors import PrepareFailed
from hotplate.deploy.local.runtime import Command
from hotplate.deploy.workload import Workload
from hotplate.serving.replica.bento import read_bento
from hotplate.serving.replica.errors import (
    BentoUnusable,
    EnvironmentFailed,
    FilesUnavailable,
)
from hotplate.serving.replica.inside.own_folder import LINK_ABOVE_BYTES
from hotplate.serving.replica.secret_values import SecretValue
from hotplate.serving.replica.variables import build_variables
from tests.support.patience import PATIENCE_S
from tests.support.replica.bentos import write_bento, write_model
from tests.support.replica.replicas import (
    Agent,
    Phases,
    SecretsOf,
    lend_own_environment,
    model,
    runtime_of,
    workload,
)


async def prepare(folder: Path, served: Workload, bento: Path | None = None) -> Command:
    """Prepare a replica of an empty bento, or of the one given, in `folder`/replica."""
    bento = bento or write_bento(folder / "bento", "")
    lend_own_environment(folder, bento)
    runtime = runtime_of(folder, Agent({"bento": bento}))
    return await runtime.prepare(served, "r", str(folder / "replica"), Phases())


async def test_a_replica_is_prepared_while_its_weights_still_arrive(tmp_path: Path) -> None:
    bento = write_bento(tmp_path / "bento", "")
    lend_own_environment(tmp_path, bento)
    tiny = write_model(tmp_path / "tiny", "tiny", "v1")
    agent = Agent({"bento": bento, "tiny": tiny}, arriving=frozenset({"tiny"}))
    agent.view, agent.absent = "/view/of/tiny", ("model.safetensors",)
    runtime = runtime_of(tmp_path, agent)
    phases = Phases()
    served = workload(models=(model("tiny", "v1", "tiny"),))

    command = await runtime.prepare(served, "r", str(tmp_path / "replica"), phases)

    assert sorted(phases.told) == ["begin environment", "begin weights", "end environment"]
    models = Path(command.env["HOTPLATE_MODELS"])
    assert (models / "tiny" / "v1").resolve() == tiny
    assert (models / "tiny" / "latest").read_text() == "v1"
    assert {str(tiny), "/view/of/tiny"} <= set(command.reads), "it reads what still arrives there"
    assert command.job["absent"] == [f"{tiny}/model.safetensors"]
    phases.news.clear()
    agent.arrived.set()
    async with asyncio.timeout(PATIENCE_S):
        await phases.news.wait()
    assert phases.told[-1] == "end weights"
    await runtime.close()


async def test_a_failed_environment_is_said_while_files_still_arrive(tmp_path: Path) -> None:
    bento = write_bento(tmp_path / "bento", "", image={"python_version": "3.99"})
    agent = Agent({"bento": bento, "tiny": tmp_path}, arriving=frozenset({"tiny"}))
    served = workload(models=(model("tiny", "v1", "tiny"),))
    with pytest.raises(EnvironmentFailed, match=r"3\.99"):
        await runtime_of(tmp_path, agent).prepare(served, "r", str(tmp_path / "r"), Phases())


@pytest.mark.parametrize(
    ("error", "retry"),
    [
        pytest.param(UnknownManifest("manifest 1234 is not at the origin"), False, id="unknown"),
        pytest.param(NoSpace("the arena is full"), True, id="no space"),
        pytest.param(CacheError("the agent does not answer"), True, id="no agent"),
    ],
)
async def test_files_that_cannot_be_had_fail_with_the_agents_sentence(
    tmp_path: Path, error: Exception, retry: bool
) -> None:
    agent = Agent({})
    agent.error = error
    with pytest.raises(FilesUnavailable, match=str(error)) as failure:
        await runtime_of(tmp_path, agent).prepare(workload(), "r", str(tmp_path / "r"), Phases())
    assert failure.value.retry == retry


async def test_a_legacy_bento_is_refused(tmp_path: Path) -> None:
    bento = write_bento(tmp_path / "bento", "")
    about = bento / "bento.yaml"
    about.write_text(about.read_text().replace("spec: 2", "spec: 1"))
    with pytest.raises(
        BentoUnusable, match=r"legacy format.*@bentoml\.service \(not bentoml\.legacy"
    ):
        await prepare(tmp_path, workload(), bento)


@pytest.mark.parametrize("damage", [{"image": "python"}, {"envs": ["KEY"]}, {"envs": 3}])
def test_a_damaged_description_is_refused(tmp_path: Path, damage: dict[str, object]) -> None:
    bento = write_bento(tmp_path / "bento", "")
    about = yaml.safe_load((bento / "bento.yaml").read_text())
    (bento / "bento.yaml").write_text(yaml.safe_dump({**about, **damage}))
    with pytest.raises(BentoUnusable, match="is damaged"):
        read_bento(bento, Hubs())


async def test_a_required_variable_without_a_value_is_named(tmp_path: Path) -> None:
    envs = [{"name": "KEY", "value": "", "stage": "all"}, {"name": "B", "stage": "build"}]
    bento = write_bento(tmp_path / "bento", "", envs=envs)
    with pytest.raises(BentoUnusable, match="The service Echo needs a value for KEY;"):
        await prepare(tmp_path, workload(), bento)


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(workload(env={"KEY": "k"}), id="given"),
        pytest.param(workload(env={"KEY": ""}), id="given, and empty"),
        pytest.param(workload("Other", entry=False), id="declared by the entry service only"),
    ],
)
async def test_a_required_variable_may_come_from_the_deployment(
    tmp_path: Path, served: Workload
) -> None:
    envs = [{"name": "KEY", "value": ""}, {"name": "SIZE", "value": "big"}]
    command = await prepare(tmp_path, served, write_bento(tmp_path / "bento", "", envs=envs))
    assert command.env.get("KEY") == served.env.get("KEY")
    assert command.env["SIZE"] == "big"


async def prepared_with(
    folder: Path, served: Workload, envs: list[dict[str, str]], **values: SecretValue
) -> Command:
    """Prepare a replica of a bento that declares these, beside secrets of its organization."""
    bento = write_bento(folder / "bento", "", envs=envs)
    lend_own_environment(folder, bento)
    runtime = runtime_of(folder, Agent({"bento": bento}), secrets=SecretsOf(**values))
    return await runtime.prepare(served, "r", str(folder / "replica"), Phases())


async def test_a_secret_goes_over_the_author_and_the_deployment_over_both(tmp_path: Path) -> None:
    names = ("author", "secret", "deployment", "required")
    envs = [{"name": name, "value": "author", "stage": "runtime"} for name in names[:3]]
    envs.append({"name": "required", "value": "", "stage": "runtime"})
    given = {name: SecretValue(name, "secret") for name in names[1:]}
    served = workload(env={"deployment": "deployment"}, secrets=names[1:])
    command = await prepared_with(tmp_path, served, envs, **given)
    assert {name: command.env[name] for name in names} == {
        **{name: name for name in names[:3]},
        "required": "secret",
    }
    assert "secrets" not in command.job


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ({}, {"BENTO_CLOUD_API_KEY": "ours r", "BENTO_CLOUD_API_ENDPOINT": "http://here"}),
        ({"BENTO_CLOUD_API_KEY": "mine"}, {"BENTO_CLOUD_API_KEY": "mine"}),
        (
            {"BENTO_CLOUD_API_ENDPOINT": "http://there"},
            {"BENTO_CLOUD_API_ENDPOINT": "http://there"},
        ),
    ],
)
@pytest.mark.parametrize("by_secret", [False, True])
async def test_a_replica_asks_the_platform_s_api_unless_somebody_says_another(
    tmp_path: Path, said: dict[str, str], given: dict[str, str], by_secret: bool
) -> None:
    bento = write_bento(tmp_path / "bento", "")
    lend_own_environment(tmp_path, bento)
    secrets = SecretsOf(**{name: SecretValue(name, value) for name, value in said.items()})
    runtime = runtime_of(
        tmp_path,
        Agent({"bento": bento}),
        secrets=secrets,
        api_access=lambda workload, replica: {
            "BENTO_CLOUD_API_KEY": f"ours {replica}",
            "BENTO_CLOUD_API_ENDPOINT": "http://here",
        },
    )
    served = workload(secrets=tuple(said)) if by_secret else workload(env=said)
    command = await runtime.prepare(served, "r", str(tmp_path / "replica"), Phases())
    assert {n: v for n, v in command.env.items() if n.startswith("BENTO_CLOUD_")} == given
    assert "ours" not in repr((command.warm, command.job))


async def test_secrets_that_are_files_reach_the_process_by_its_job_alone(tmp_path: Path) -> None:
    given = {
        "file": SecretValue("id", "the-key", file="keys/id"),
        "other": SecretValue("OTHER", "not-asked-for"),
    }
    served = workload(secrets=("file",))
    command = await prepared_with(tmp_path, served, [], **given)
    assert command.job["secrets"]["files"] == {"keys/id": "the-key"}
    assert command.job["secrets"]["of"] == str(tmp_path / "replica")
    assert command.job["secrets"]["folder"].startswith("/dev/shm/hotplate-secrets-")
    assert not {"id", "OTHER"} & command.env.keys()
    assert "the-key" not in repr(command.warm)


def test_a_build_has_the_authors_value_unless_a_secret_or_the_deployment_has_another() -> None:
    declared = [{"name": name, "value": "author", "stage": "build"} for name in "ABC"]
    served = workload(env={"C": "deployment"})
    assert build_variables(served, declared, {"B", "C"}) == {"A": "author", "C": "deployment"}


async def test_the_gateways_limits_go_over_bentomls(tmp_path: Path) -> None:
    overrides = {"traffic": {"timeout": 5, "max_concurrency": 3}, "threads": 7}
    command = await prepare(tmp_path, workload(config_overrides=overrides))
    said = json.loads(command.env["BENTOML_CONFIG_OVERRIDES"])["services"]["Echo"]
    assert said == {
        "traffic": {"timeout": 86400, "max_concurrency": None},
        "runner_probe": {"enabled": False},
        "threads": 7,
    }


async def test_a_user_may_add_to_the_search_paths_but_not_take_ours_away(tmp_path: Path) -> None:
    env = {"PATH": "/mine", "PYTHONPATH": "/modules", "HOTPLATE_TREES": "/", "OMP_NUM_THREADS": "9"}
    command = await prepare(tmp_path, workload(env=env, cpus=4))
    python = Path(command.argv[0])
    assert command.env["PATH"] == f"{python.parent}:/mine"
    first, last = command.env["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "hotplate/serving/replica/inside/worker.py").exists()
    assert last == "/modules"
    assert command.env["HOTPLATE_TREES"] == str(tmp_path)
    assert command.env["OMP_NUM_THREADS"] == "9"
    assert command.env["MKL_NUM_THREADS"] == "4"


async def test_each_replica_may_write_beside_its_code(tmp_path: Path) -> None:
    bento = write_bento(tmp_path / "bento", "")
    code, data = bento / "src" / "service.py", bento / "src" / "data.bin"
    data.write_bytes(b"x" * (LINK_ABOVE_BYTES + 1))
    code.chmod(0o555)
    command = await prepare(tmp_path, workload(), bento)
    copy = Path(command.cwd) / "src"
    (copy / "service.py").write_text("changed")
    assert code.read_text() != "changed"
    assert os.access(copy / "service.py", os.X_OK)
    assert (copy / "data.bin").readlink() == data


@pytest.mark.parametrize(
    ("config", "path"),
    [
        pytest.param({}, "/readyz?of=itself", id="plain"),
        pytest.param(
            {"endpoints": {"readyz": "/v1/readyz"}}, "/v1/readyz?of=itself", id="path prefix"
        ),
        pytest.param(
            {"endpoints": {"readyz": "/health"}}, "/readyz?of=itself", id="of a custom command"
        ),
    ],
)
async def test_readiness_is_asked_where_bentoml_answers(
    tmp_path: Path, config: dict[str, Any], path: str
) -> None:
    assert (await prepare(tmp_path, workload(config=config))).ready_path == path


def test_a_build_gets_the_authors_values_and_what_the_deployment_means_for_it() -> None:
    declared: Sequence[dict[str, str]] = [
        {"name": "CMAKE_ARGS", "value": "-DX=1", "stage": "all"},
        {"name": "TOKEN", "value": "", "stage": "build"},
        {"name": "HF_TOKEN", "value": "", "stage": "all"},
        {"name": "UV_INDEX_PASSWORD", "value": "", "stage": "all"},
        {"name": "RUN", "value": "x", "stage": "runtime"},
    ]
    given = {name: "given" for name in ("TOKEN", "HF_TOKEN", "UV_INDEX_PASSWORD", "RUN")}
    assert build_variables(workload(env=given), declared) == {
        "CMAKE_ARGS": "-DX=1",
        "TOKEN": "given",
        "UV_INDEX_PASSWORD": "given",
    }


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = PrepareFailed.__subclasses__()
    assert len({kind.code for kind in kinds} | {PrepareFailed.code}) == len(kinds) + 1
